// config list / show / check / diff / explain, from what the runtime library says about its configuration.
#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <iterator>
#include <optional>

#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"
#include "tools/native/files.h"

namespace trnsim::native {
namespace po = boost::program_options;
namespace json = boost::json;

namespace {

// Nothing after a complaint when the configuration is not good.
std::optional<json::object> load(const std::string& name, const std::string& overrides, int* code) {
  if (trnsim_configure(name.empty() ? nullptr : name.c_str(), overrides.empty() ? nullptr : overrides.c_str(),
                       nullptr, nullptr) != NRT_SUCCESS) {
    *code = complain(trnsim_last_error(), kUsage);
    return std::nullopt;
  }
  const std::string text = trnsim_config_json();
  trnsim_configure("", "", "", "");
  return json::parse(text).as_object();
}

std::string text_of(const json::value& v) {
  if (v.is_string()) return std::string(v.as_string());
  if (v.is_int64()) return std::to_string(v.as_int64());
  if (v.is_uint64()) return std::to_string(v.as_uint64());
  if (v.is_double()) {
    char s[32];
    std::snprintf(s, sizeof s, "%.10g", v.as_double());
    return s;
  }
  return json::serialize(v);
}

std::string get(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr ? "" : text_of(*v);
}

std::string pad(std::string s, size_t width) {
  s.resize(std::max(s.size() + 1, width), ' ');
  return s;
}

std::string joined(const po::variables_map& map, const char* option) {
  std::string out;
  if (map.count(option) != 0)
    for (const auto& s : map[option].as<std::vector<std::string>>()) out += (out.empty() ? "" : ",") + s;
  return out;
}

int list() {
  int code = kGood;
  const auto config = load("trn2", "", &code);
  if (!config) return code;
  for (const auto& name : config->at("builtin").as_array()) std::cout << name.as_string().c_str() << '\n';
  return kGood;
}

int show(const std::string& name, const std::string& overrides, bool as_json) {
  int code = kGood;
  const auto config = load(name, overrides, &code);
  if (!config) return code;
  if (as_json) {
    std::cout << json::serialize(*config) << '\n';
    return kGood;
  }
  for (const auto& v : config->at("parameters").as_array()) {
    const auto& p = v.as_object();
    const bool changed = get(p, "value") != get(p, "default");
    std::cout << pad(get(p, "key"), 46) << pad(get(p, "value") + (changed ? " *" : ""), 16)
              << pad(get(p, "unit"), 12) << get(p, "origin") << '\n';
  }
  return kGood;
}

int diff(const std::string& a, const std::string& b) {
  int code = kGood;
  const auto left = load(a, "", &code);
  const auto right = left ? load(b, "", &code) : std::nullopt;
  if (!right) return code;
  const auto& pa = left->at("parameters").as_array();
  const auto& pb = right->at("parameters").as_array();
  for (size_t i = 0; i < std::min(pa.size(), pb.size()); ++i) {
    const auto& x = pa[i].as_object();
    const auto& y = pb[i].as_object();
    if (get(x, "value") == get(y, "value")) continue;
    std::cout << pad(get(x, "key"), 46) << pad(get(x, "value"), 14) << pad(get(y, "value"), 14)
              << get(x, "unit") << '\n';
  }
  return kGood;
}

int check(const std::string& what, const std::string& overrides) {
  int code = kGood;
  const auto config = load(what, overrides, &code);
  if (!config) return code;
  std::cout << get(*config, "name") << ": good\n";
  return kGood;
}

void explain(const json::object& p) {
  std::cout << get(p, "key") << '\n';
  for (const char* field : {"doc", "value", "default", "unit", "min", "max", "origin", "source", "band"})
    if (p.if_contains(field) != nullptr) std::cout << "  " << pad(field, 10) << get(p, field) << '\n';
}

// One parameter, or all of a group.
int explain(const std::string& key, const std::string& name) {
  int code = kGood;
  const auto config = load(name, "", &code);
  if (!config) return code;
  bool found = false;
  for (const auto& v : config->at("parameters").as_array()) {
    const std::string candidate = get(v.as_object(), "key");
    if (candidate != key && candidate.rfind(key + ".", 0) != 0) continue;
    explain(v.as_object());
    found = true;
  }
  if (found) return kGood;
  // The loader knows the nearest name; its words begin with the override that was never given.
  trnsim_configure(nullptr, (key + "=").c_str(), nullptr, nullptr);
  const std::string text = trnsim_last_error();
  const size_t words = text.find("unknown parameter");
  return complain("user error: " + (words == std::string::npos ? text : text.substr(words)), kUsage);
}

}  // namespace

int config_verb(const Arguments& arguments) {
  const std::string usage =
      "config list | show [NAME|FILE] [--set key=value] [--json] | check [NAME|FILE] [--set key=value] | "
      "diff A B | explain KEY [--config NAME|FILE]";
  po::options_description options("options");
  options.add_options()("verb", po::value<std::string>(), "list, show, check, diff, explain")(
      "what", po::value<Arguments>(), "names, files or a key")("set", po::value<Arguments>()->composing(),
                                                               "key=value, repeatable")(
      "config", po::value<std::string>()->default_value(""), "configuration: name or file")("json",
                                                                                            "as JSON");
  po::positional_options_description positional;
  positional.add("verb", 1).add("what", -1);
  int code = kGood;
  const auto map = parse(arguments, usage, options, positional, &code);
  if (!map) return code;
  struct Verb {
    const char* name;
    size_t least, most;  // arguments
    std::vector<std::string> options;
  };
  static const Verb kVerbs[] = {{"list", 0, 0, {}},
                                {"show", 0, 1, {"set", "json", "config"}},
                                {"check", 0, 1, {"set"}},
                                {"diff", 2, 2, {}},
                                {"explain", 1, 1, {"config"}}};
  const std::string name = map->count("verb") == 0 ? "" : (*map)["verb"].as<std::string>();
  const Arguments what = map->count("what") == 0 ? Arguments{} : (*map)["what"].as<Arguments>();
  const auto refuse = [&](const std::string& why) {
    return complain("user error: config " + name + why + "\nusage: " + command_name + " " + usage, kUsage);
  };
  const auto verb =
      std::find_if(std::begin(kVerbs), std::end(kVerbs), [&](const Verb& v) { return name == v.name; });
  if (verb == std::end(kVerbs)) return refuse(name.empty() ? "needs a verb" : " is no verb");
  if (what.size() < verb->least || what.size() > verb->most)
    return refuse(" with " + std::to_string(what.size()) + " arguments");
  for (const char* option : {"set", "config", "json"})
    if (map->count(option) != 0 && !(*map)[option].defaulted() &&
        std::find(verb->options.begin(), verb->options.end(), option) == verb->options.end())
      return refuse(std::string(" takes no --") + option);

  const std::string overrides = joined(*map, "set");
  const std::string config = (*map)["config"].as<std::string>();
  const std::string chosen = what.empty() ? config : what[0];
  if (name == "list") return list();
  if (name == "show") return show(chosen, overrides, map->count("json") != 0);
  if (name == "check") return check(chosen, overrides);
  if (name == "diff") return diff(what[0], what[1]);
  return explain(what[0], config);
}

}  // namespace trnsim::native
