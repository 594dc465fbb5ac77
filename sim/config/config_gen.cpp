// Build-time tool: writes the plain structs and the visitor of config.proto (config_fields.h) and the text of
// the built-in configuration files (config_builtin.cpp). Usage: trnsim_config_gen FIELDS.h BUILTIN.cpp
// CONFIG_DIR FILE.textproto...
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "sim/config/config.pb.h"

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const char* member_type(const FieldDescriptor* f) {
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return "int64_t";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "double";
    case FieldDescriptor::CPPTYPE_STRING:
      return "std::string";
    default:
      return nullptr;
  }
}

bool is_group(const FieldDescriptor* f) {
  return f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !f->is_repeated();
}

bool write_fields(const std::string& path, const Descriptor* file) {
  std::ofstream out(path);
  out << "// Generated from sim/config/config.proto by trnsim_config_gen.\n#pragma once\n\n#include "
         "<cstdint>\n"
         "#include <string>\n\nnamespace trnsim::config {\n\n";
  std::ostringstream members, visits;
  for (int i = 0; i < file->field_count(); ++i) {
    const FieldDescriptor* group = file->field(i);
    if (!is_group(group)) continue;
    const Descriptor* message = group->message_type();
    out << "struct " << message->name() << " {\n";
    for (int j = 0; j < message->field_count(); ++j) {
      const FieldDescriptor* field = message->field(j);
      const char* type = member_type(field);
      if (type == nullptr || !field->options().HasExtension(trnsim::config::proto::p)) {
        std::cerr << "config.proto: " << field->full_name()
                  << " needs type int64, double or string and the option (p)\n";
        return false;
      }
      const auto& p = field->options().GetExtension(trnsim::config::proto::p);
      out << "  " << type << ' ' << field->name()
          << (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "" : " = 0") << ";  // " << p.unit()
          << ": " << p.doc() << '\n';
      visits << "  f(\"" << group->name() << '.' << field->name() << "\", c." << group->name() << '.'
             << field->name() << ");\n";
    }
    out << "};\n\n";
    members << "  " << message->name() << ' ' << group->name() << ";\n";
  }
  out << "struct Parameters {\n"
      << members.str() << "};\n\n// Calls f(key, value&) for every parameter in schema order.\n"
      << "template <class P, class F>\nvoid visit_parameters(P& c, F&& f) {\n"
      << visits.str() << "}\n\n}  // namespace trnsim::config\n";
  return static_cast<bool>(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: trnsim_config_gen FIELDS.h BUILTIN.cpp CONFIG_DIR FILE.textproto...\n";
    return 2;
  }
  if (!write_fields(argv[1], trnsim::config::proto::ConfigFile::descriptor())) return 1;
  const std::string root = std::string(argv[3]) + "/";
  std::ofstream out(argv[2]);
  out << "// Generated from configs/ by trnsim_config_gen.\n#include \"sim/config/builtin.h\"\n\n"
         "namespace trnsim::config {\n\nconst std::vector<Builtin>& builtins() {\n  static const "
         "std::vector<Builtin> all = {\n";
  for (int i = 4; i < argc; ++i) {
    std::string path = argv[i];
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) {
      std::cerr << path << ": cannot be read\n";
      return 1;
    }
    std::string relative = path.rfind(root, 0) == 0 ? path.substr(root.size()) : path;
    std::string name = relative.substr(relative.find_last_of('/') + 1);
    name.resize(name.rfind(".textproto"));
    out << "      {\"" << name << "\", \"configs/" << relative << "\", R\"~~~(" << text.str() << ")~~~\"},\n";
  }
  out << "  };\n  return all;\n}\n\n}  // namespace trnsim::config\n";
  return out ? 0 : 1;
}
