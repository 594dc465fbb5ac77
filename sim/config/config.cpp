#include "sim/config/config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "sim/config/builtin.h"
#include "sim/config/config.pb.h"

namespace trnsim::config {
namespace {

namespace pb = google::protobuf;
using proto::ConfigFile;

constexpr int kMaxBaseDepth = 8;
constexpr size_t kMaxFileBytes = size_t{1} << 20;  // a configuration is text of a few kilobytes

const Builtin* find_builtin(std::string_view name) {
  for (const Builtin& b : builtins()) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

// Edits from `word` to the nearest part of `name` (so that a bare "bandwidth" is near "stack_bandwidth"), or to
// all of it.
size_t edit_distance(std::string_view word, std::string_view name, bool to_a_part) {
  std::vector<size_t> row(name.size() + 1, 0);
  for (size_t j = 0; !to_a_part && j <= name.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= word.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (word[i - 1] == name[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return to_a_part ? *std::min_element(row.begin(), row.end()) : row.back();
}

struct Nearest {
  std::string name;
  bool near = false;  // close enough to be a slip of the pen
};

Nearest nearest(std::string_view word, const std::vector<std::string>& candidates) {
  Nearest best;
  std::pair<size_t, size_t> distance{SIZE_MAX, SIZE_MAX};
  for (const std::string& c : candidates) {
    const std::pair<size_t, size_t> d{edit_distance(word, c, true), edit_distance(word, c, false)};
    if (d < distance) {
      distance = d;
      best.name = c;
    }
  }
  best.near = distance.first <= word.size() / 4 || distance.second <= std::max<size_t>(3, word.size() / 2);
  return best;
}

std::string suggestion(const Nearest& n) {
  if (n.near) return "; did you mean '" + n.name + "'?";
  return n.name.empty() ? "" : "; the nearest name is '" + n.name + "'";
}

std::string number_text(double v) {
  char buffer[40];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  return std::string(buffer, r.ptr);
}

const std::vector<std::string>& all_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> k;
    Parameters p;
    visit_parameters(p, [&](const char* key, auto&) { k.push_back(key); });
    return k;
  }();
  return keys;
}

std::vector<std::string> names_of(std::string_view group) {
  std::vector<std::string> names;
  const std::string prefix = std::string(group) + ".";
  for (const std::string& k : all_keys())
    if (k.rfind(prefix, 0) == 0) names.push_back(k.substr(prefix.size()));
  return names;
}

// The parameter that `key` may have meant: of its group when it names one, else by the parameter's name alone.
Nearest nearest_parameter(std::string_view key) {
  const size_t dot = key.find('.');
  const std::string_view group = key.substr(0, dot);
  if (dot != std::string_view::npos && !names_of(group).empty()) {
    Nearest n = nearest(key.substr(dot + 1), names_of(group));
    n.name = std::string(group) + "." + n.name;
    return n;
  }
  if (dot != std::string_view::npos) return nearest(key, all_keys());
  std::vector<std::string> names;
  for (const std::string& k : all_keys()) names.push_back(k.substr(k.find('.') + 1));
  Nearest n = nearest(key, names);
  n.name = all_keys()[static_cast<size_t>(std::find(names.begin(), names.end(), n.name) - names.begin())];
  return n;
}

std::string key_suggestion(std::string_view key) {
  return suggestion(nearest_parameter(key)) + " (`trnsim config show` lists all)";
}

struct FieldPath {
  const pb::FieldDescriptor* group = nullptr;
  const pb::FieldDescriptor* field = nullptr;
};

FieldPath find_field(std::string_view key) {
  FieldPath path;
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return path;
  path.group = ConfigFile::descriptor()->FindFieldByName(std::string(key.substr(0, dot)));
  if (path.group == nullptr || path.group->message_type() == nullptr || path.group->is_repeated()) return {};
  path.field = path.group->message_type()->FindFieldByName(std::string(key.substr(dot + 1)));
  return path;
}

const proto::Param& param(const pb::FieldDescriptor* field) {
  return field->options().GetExtension(proto::p);
}

// Empty when the value is inside the range of the field.
std::string range_error(const std::string& key, const pb::FieldDescriptor* field, double value) {
  const proto::Param& p = param(field);
  if (std::isfinite(value) && value >= p.min() && value <= p.max()) return "";
  return key + " = " + number_text(value) + " " + p.unit() + " is outside its range " + number_text(p.min()) +
         " to " + number_text(p.max());
}

// One line each: a file or a list of overrides is mended in one go.
void append(std::string* errors, const std::string& error) {
  if (!error.empty()) *errors += (errors->empty() ? "" : "\n") + error;
}

// Collects the errors of the text parser and words unknown names with the nearest valid one. The parser goes on behind an
// unknown name (it calls that a warning), and ends at anything else.
class ErrorCollector : public pb::io::ErrorCollector {
 public:
  explicit ErrorCollector(std::string file) : file_(std::move(file)) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    append(&text_, "user error: " + file_ + ":" + std::to_string(line + 1) + ":" +
                       std::to_string(column + 1) + ": " + reword(message));
  }
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    AddError(line, column, message);
  }
  const std::string& text() const { return text_; }

 private:
  static std::string reword(const std::string& message) {
    // Message type "trnsim.config.proto.Vector" has no field named "clok_ghz".
    const size_t type_at = message.find("Message type \"");
    const size_t name_at = message.find("has no field named \"");
    if (type_at == std::string::npos || name_at == std::string::npos) return message;
    const auto quoted = [&](size_t from) {
      const size_t begin = message.find('"', from) + 1;
      return message.substr(begin, message.find('"', begin) - begin);
    };
    const std::string type = quoted(type_at), name = quoted(name_at);
    const pb::Descriptor* d = ConfigFile::descriptor()->file()->pool()->FindMessageTypeByName(type);
    std::vector<std::string> names;
    for (int i = 0; d != nullptr && i < d->field_count(); ++i) names.push_back(d->field(i)->name());
    std::string group = "the file";
    for (int i = 0; i < ConfigFile::descriptor()->field_count(); ++i) {
      if (ConfigFile::descriptor()->field(i)->message_type() == d)
        group = ConfigFile::descriptor()->field(i)->name();
    }
    return "unknown parameter '" + name + "' in " + group + suggestion(nearest(name, names));
  }

  std::string file_, text_;
};

struct Parsed {
  ConfigFile values;  // merged over the bases
  std::string chip_name;
  std::map<std::string, Provenance> provenance;
};

void check_ranges(const ConfigFile& file, const pb::TextFormat::ParseInfoTree& tree, const std::string& path,
                  std::string* errors) {
  const auto* reflection = file.GetReflection();
  std::vector<const pb::FieldDescriptor*> groups;
  reflection->ListFields(file, &groups);
  for (const auto* group : groups) {
    if (group->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE || group->is_repeated()) continue;
    const pb::Message& m = reflection->GetMessage(file, group);
    std::vector<const pb::FieldDescriptor*> fields;
    m.GetReflection()->ListFields(m, &fields);
    for (const auto* field : fields) {
      double value = 0;
      if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_INT64) {
        value = static_cast<double>(m.GetReflection()->GetInt64(m, field));
      } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_DOUBLE) {
        value = m.GetReflection()->GetDouble(m, field);
      } else {
        continue;
      }
      const std::string key = group->name() + "." + field->name();
      const std::string bad = range_error(key, field, value);
      if (bad.empty()) continue;
      pb::TextFormat::ParseLocation at;
      if (const auto* nested = tree.GetTreeForNested(group, -1)) at = nested->GetLocation(field, -1);
      append(errors, "user error: " + path + ":" + std::to_string(at.line + 1) + ":" +
                         std::to_string(at.column + 1) + ": " + bad + "; see `trnsim config explain " + key +
                         "`");
    }
  }
}

bool parse(std::string_view name_or_file, const std::string& directory, int depth, Parsed* out,
           std::string* error);

bool parse_text(const std::string& path, const std::string& text, const std::string& builtin_name,
                const std::string& directory, int depth, Parsed* out, std::string* error) {
  ConfigFile file;
  ErrorCollector collector(path);
  pb::TextFormat::ParseInfoTree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.WriteLocationsTo(&tree);
  parser.AllowUnknownField(true);
  pb::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  const bool parsed = parser.Parse(&input, &file);
  *error = collector.text();
  if (!parsed && error->empty()) *error = "user error: " + path + ": not a configuration file";
  check_ranges(file, tree, path, error);
  for (int i = 0; i < file.provenance_size(); ++i) {
    const std::string& key = file.provenance(i).key();
    const auto* group = ConfigFile::descriptor()->FindFieldByName(key);
    if (find_field(key).field == nullptr &&
        (group == nullptr || group->name() == "base" || group->is_repeated())) {
      const auto at = tree.GetLocation(ConfigFile::descriptor()->FindFieldByName("provenance"), i);
      append(error, "user error: " + path + ":" + std::to_string(at.line + 1) + ":" +
                        std::to_string(at.column + 1) + ": provenance of unknown parameter '" + key + "'" +
                        key_suggestion(key));
    }
  }
  if (!error->empty()) return false;

  if (file.has_base()) {
    if (depth >= kMaxBaseDepth) {
      *error = "user error: " + path + ": more than " + std::to_string(kMaxBaseDepth) +
               " levels of `base`; a file may not be its own base";
      return false;
    }
    if (!parse(file.base(), directory, depth + 1, out, error)) {
      *error += " (base of " + path + ")";
      return false;
    }
  }
  // A file that names the generation describes a chip: its values are the defaults and keep the origins of
  // the schema. Any other file changes a chip: what it sets is marked as such unless it says where it got it.
  const bool is_chip = file.chip().has_generation();
  if (is_chip) {
    out->chip_name = builtin_name.empty() ? path : builtin_name;
  } else {
    const auto* reflection = file.GetReflection();
    std::vector<const pb::FieldDescriptor*> groups, fields;
    reflection->ListFields(file, &groups);
    for (const auto* group : groups) {
      if (group->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE || group->is_repeated()) continue;
      const pb::Message& m = reflection->GetMessage(file, group);
      m.GetReflection()->ListFields(m, &fields);
      for (const auto* field : fields) {
        const std::string key = group->name() + "." + field->name();
        out->provenance[key] = {key, Origin::kOverride, path, 0};
      }
    }
  }
  for (const auto& p : file.provenance()) {
    out->provenance[p.key()] = {p.key(), static_cast<Origin>(p.origin()), p.source(), p.band()};
  }
  file.clear_base();
  file.clear_provenance();
  out->values.MergeFrom(file);
  return true;
}

// False with the reason when the file is not text of a sensible size.
bool read_text(const std::string& path, std::string* text, std::string* why) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    *why = "no such file";
    return false;
  }
  if (std::filesystem::is_directory(status)) {
    *why = "it is a folder";
    return false;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    *why = std::strerror(errno);
    return false;
  }
  text->resize(kMaxFileBytes + 1);  // one more than allowed: devices have no end
  in.read(text->data(), static_cast<std::streamsize>(text->size()));
  text->resize(static_cast<size_t>(in.gcount()));
  if (in.bad()) {
    *why = std::strerror(errno);
    return false;
  }
  if (text->find('\0') != std::string::npos || text->size() > kMaxFileBytes) {
    *why = text->size() > kMaxFileBytes ? "it is larger than 1 MiB" : "it is a binary file";
    return false;
  }
  return true;
}

bool parse(std::string_view name_or_file, const std::string& directory, int depth, Parsed* out,
           std::string* error) {
  if (const Builtin* b = find_builtin(name_or_file)) {
    return parse_text(b->path, b->text, b->name, "", depth, out, error);
  }
  std::string path(name_or_file);
  if (!directory.empty() && !path.empty() && path[0] != '/') path = directory + "/" + path;
  std::string text, why;
  if (!read_text(path, &text, &why)) {
    std::string names;
    for (const Builtin& b : builtins()) names += (names.empty() ? "" : ", ") + b.name;
    const Nearest name = nearest(name_or_file, builtin_names());
    *error = "user error: configuration '" + path + "' is neither a built-in name (" + names +
             ") nor a configuration file: " + why + (name.near ? suggestion(name) : "");
    return false;
  }
  const size_t slash = path.find_last_of('/');
  return parse_text(path, text, "", slash == std::string::npos ? "." : path.substr(0, slash), depth, out,
                    error);
}

bool fill(const ConfigFile& values, Config* config, std::string* error) {
  constexpr size_t kMaxNamed = 5;
  std::vector<std::string> missing;
  size_t num_missing = 0;
  visit_parameters(*config, [&](const char* key, auto& target) {
    const FieldPath path = find_field(key);
    const pb::Message& m = values.GetReflection()->GetMessage(values, path.group);
    if (!m.GetReflection()->HasField(m, path.field)) {
      if (missing.size() < kMaxNamed) missing.emplace_back(key);
      ++num_missing;
      return;
    }
    using T = std::decay_t<decltype(target)>;
    if constexpr (std::is_same_v<T, std::string>) {
      target = m.GetReflection()->GetString(m, path.field);
    } else if constexpr (std::is_same_v<T, double>) {
      target = m.GetReflection()->GetDouble(m, path.field);
    } else {
      target = m.GetReflection()->GetInt64(m, path.field);
    }
  });
  if (num_missing == 0) return true;
  *error = "user error: configuration '" + config->name + "' gives no value for";
  for (const std::string& key : missing) *error += (key == missing.front() ? " " : ", ") + key;
  if (num_missing > missing.size())
    *error += " and " + std::to_string(num_missing - missing.size()) + " more";
  *error += "; set them, or name a `base`";
  return false;
}

std::string strip(std::string_view s) {
  const auto begin = s.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(s.substr(begin, s.find_last_not_of(" \t\r\n") - begin + 1));
}

std::string check_relations(const Config& c) {
  if (c.memory.sbuf_usable_bytes_per_partition > c.memory.sbuf_bytes_per_partition) {
    return "memory.sbuf_usable_bytes_per_partition = " +
           std::to_string(c.memory.sbuf_usable_bytes_per_partition) +
           " is larger than memory.sbuf_bytes_per_partition = " +
           std::to_string(c.memory.sbuf_bytes_per_partition);
  }
  if (c.chip.cores % c.chip.logical_core_size != 0) {
    return "chip.cores = " + std::to_string(c.chip.cores) +
           " is no multiple of chip.logical_core_size = " + std::to_string(c.chip.logical_core_size);
  }
  return "";
}

template <class T>
std::string value_text(const T& v) {
  if constexpr (std::is_same_v<T, std::string>) {
    return v;
  } else if constexpr (std::is_same_v<T, double>) {
    return number_text(v);
  } else {
    return std::to_string(v);
  }
}

}  // namespace

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::kDocument:
      return "document";
    case Origin::kMeasured:
      return "measured";
    case Origin::kGuess:
      return "guess";
    case Origin::kOverride:
      return "override";
  }
  return "";
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const Builtin& b : builtins()) names.push_back(b.name);
  return names;
}

bool set(Config& config, std::string_view key, std::string_view value, std::string* error) {
  const std::string text = strip(value);
  bool found = false;
  std::string problem;
  visit_parameters(config, [&](const char* name, auto& target) {
    if (key != name) return;
    found = true;
    using T = std::decay_t<decltype(target)>;
    const FieldPath path = find_field(key);
    if constexpr (std::is_same_v<T, std::string>) {
      if (text.empty()) problem = std::string(key) + " must not be empty";
      if (problem.empty()) target = text;
    } else {
      T v{};
      const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
      if (r.ec == std::errc::result_out_of_range) {
        problem = std::string(key) + " = " + text + " is outside its range " +
                  number_text(param(path.field).min()) + " to " + number_text(param(path.field).max());
        return;
      }
      if (r.ec != std::errc() || r.ptr != text.data() + text.size() || text.empty()) {
        problem = std::string(key) + " needs " + (std::is_same_v<T, double> ? "a number" : "an integer") +
                  " in " + param(path.field).unit() + ", got '" + text + "'";
        return;
      }
      problem = range_error(std::string(key), path.field, static_cast<double>(v));
      if (problem.empty()) target = v;
    }
  });
  if (!found) problem = "unknown parameter '" + std::string(key) + "'" + key_suggestion(key);
  if (problem.empty()) {
    const std::string k(key);
    auto& list = config.provenance;
    list.erase(std::remove_if(list.begin(), list.end(), [&](const Provenance& p) { return p.key == k; }),
               list.end());
    list.push_back({k, Origin::kOverride, "override", 0});
    return true;
  }
  if (error != nullptr) *error = "user error: " + problem;
  return false;
}

std::optional<Config> load(std::string_view name_or_file, std::string_view overrides, std::string* error) {
  std::string local;
  if (error == nullptr) error = &local;
  error->clear();
  Parsed parsed;
  if (!parse(name_or_file, "", 0, &parsed, error)) return std::nullopt;
  Config config;
  config.name = std::string(name_or_file);
  config.overrides = std::string(overrides);
  config.chip_name = parsed.chip_name;
  if (!fill(parsed.values, &config, error)) return std::nullopt;
  for (auto& [key, p] : parsed.provenance) config.provenance.push_back(p);

  int index = 0;
  std::map<std::string, std::string> set_by;  // key -> its override
  for (size_t at = 0; at < overrides.size();) {
    const size_t comma = std::min(overrides.find(',', at), overrides.size());
    const std::string item = strip(overrides.substr(at, comma - at));
    at = comma + 1;
    ++index;
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string where = "override " + std::to_string(index) + " '" + item + "': ";
    if (equals == std::string::npos) {
      append(error, "user error: " + where + "expected key=value");
      continue;
    }
    std::string problem;
    const std::string key = strip(std::string_view(item).substr(0, equals));
    if (!set(config, key, std::string_view(item).substr(equals + 1), &problem)) {
      append(error, "user error: " + where + problem.substr(std::string("user error: ").size()));
      continue;
    }
    if (const auto [before, fresh] = set_by.emplace(key, item); !fresh)
      append(error, "user error: " + where + "the parameter is already set by '" + before->second + "'");
  }
  if (!error->empty()) return std::nullopt;
  *error = check_relations(config);
  if (!error->empty()) {
    *error = "user error: configuration '" + config.name + "': " + *error;
    return std::nullopt;
  }
  return config;
}

std::vector<ParameterInfo> describe(const Config& config) {
  std::vector<ParameterInfo> all;
  std::map<std::string, const Provenance*> provenance;
  for (const Provenance& p : config.provenance) provenance[p.key] = &p;
  visit_parameters(config, [&](const char* key, const auto& value) {
    ParameterInfo info;
    info.key = key;
    info.value = info.default_value = value_text(value);
    info.is_text = std::is_same_v<std::decay_t<decltype(value)>, std::string>;
    const FieldPath path = find_field(key);
    const proto::Param& p = param(path.field);
    info.unit = p.unit();
    info.min = p.min();
    info.max = p.max();
    info.origin = static_cast<Origin>(p.origin());
    info.source = p.source();
    info.band = p.band();
    info.doc = p.doc();
    auto it = provenance.find(key);
    if (it == provenance.end()) it = provenance.find(path.group->name());
    if (it != provenance.end()) {
      info.origin = it->second->origin;
      info.source = it->second->source;
      info.band = it->second->band;
    }
    all.push_back(std::move(info));
  });
  std::string ignored;
  if (const auto defaults = load(config.chip_name, "", &ignored)) {
    size_t i = 0;
    visit_parameters(*defaults,
                     [&](const char*, const auto& value) { all[i++].default_value = value_text(value); });
  }
  return all;
}

std::string describe_json(const Config& config) {
  boost::json::array parameters;
  for (const ParameterInfo& p : describe(config)) {
    boost::json::object o;
    o["key"] = p.key;
    const auto number = [&](const std::string& text) -> boost::json::value {
      if (p.is_text) return boost::json::value(text);
      double v = 0;
      std::from_chars(text.data(), text.data() + text.size(), v);
      return boost::json::value(v);
    };
    o["value"] = number(p.value);
    o["default"] = number(p.default_value);
    o["unit"] = p.unit;
    if (!p.is_text) {
      o["min"] = p.min;
      o["max"] = p.max;
    }
    o["origin"] = origin_name(p.origin);
    o["source"] = p.source;
    o["band"] = p.band;
    o["doc"] = p.doc;
    parameters.push_back(std::move(o));
  }
  boost::json::object root;
  root["name"] = config.name;
  root["overrides"] = config.overrides;
  root["chip"] = config.chip_name;
  root["parameters"] = std::move(parameters);
  return boost::json::serialize(root);
}

std::vector<Difference> diff(const Config& a, const Config& b) {
  std::vector<std::string> values;
  visit_parameters(a, [&](const char*, const auto& v) { values.push_back(value_text(v)); });
  std::vector<Difference> out;
  size_t i = 0;
  visit_parameters(b, [&](const char* key, const auto& v) {
    std::string text = value_text(v);
    if (text != values[i]) out.push_back({key, values[i], std::move(text)});
    ++i;
  });
  return out;
}

double hbm_bytes_per_second_per_core(const Config& c) {
  const double engines = static_cast<double>(c.dma.engines) * c.dma.clock_ghz * c.dma.bytes_per_cycle;
  return std::min(engines, c.hbm.stack_bandwidth_gb_per_s) * 1e9;
}

}  // namespace trnsim::config
