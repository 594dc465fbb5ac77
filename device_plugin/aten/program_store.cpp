#include "device_plugin/aten/program_store.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "device_plugin/aten/runtime_link.h"
#include "isa/utf8.h"

namespace trnsim::aten {
namespace {

class ContentWriter {
 public:
  template <typename T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number<uint32_t>(static_cast<uint32_t>(value.size()));
    out_ += value;
  }
  template <typename T>
  void list(const std::vector<T>& values) {
    number<uint32_t>(static_cast<uint32_t>(values.size()));
    for (const auto& v : values) (*this)(v);
  }
  void operator()(const compiler::Optional&) {}
  void operator()(bool v) { number<uint8_t>(v); }
  void operator()(int32_t v) { number(v); }
  void operator()(int64_t v) { number(v); }
  void operator()(double v) { number(v); }
  void operator()(compiler::Dtype v) { number(v); }
  void operator()(const std::string& v) { text(v); }
  void operator()(const compiler::ValueList& v) { list(v.ids); }
  void operator()(const compiler::ParamRef& v) {
    number(v.slot);
    number(v.dtype);
  }
  void operator()(const std::vector<bool>& v) {
    number<uint32_t>(static_cast<uint32_t>(v.size()));
    for (bool b : v) number<uint8_t>(b);
  }
  template <typename T>
  void operator()(const std::vector<T>& v) {
    list(v);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

uint64_t fnv1a(std::string_view bytes, uint64_t seed) {
  uint64_t h = seed;
  for (unsigned char c : bytes) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

// Changes with every build of the compiler, so that an old file is never taken for a new one.
const std::string& compiler_version() {
  static const std::string version = [] {
    Dl_info info{};
    void* vtable = *reinterpret_cast<void* const*>(&compiler_library());
    struct stat status {};
    if (dladdr(vtable, &info) == 0 || stat(info.dli_fname, &status) != 0) return std::string("unknown");
    return std::to_string(status.st_size) + "-" + std::to_string(status.st_mtim.tv_sec) + "." +
           std::to_string(status.st_mtim.tv_nsec);
  }();
  return version;
}

std::string cache_folder() {
  if (env_flag("TORCH_NEURONX_DISABLE_NEFF_CACHE", false) ||
      env_flag("TORCH_NEURONX_NEFF_DISABLE_CACHE", false))
    return {};
  const char* folder = std::getenv("TORCH_NEURONX_NEFF_CACHE_DIR");
  return folder == nullptr ? std::string() : std::string(folder);
}

constexpr char kMagic[8] = {'T', 'R', 'N', 'S', 'C', 'A', 'C', '2'};

std::string cache_file(const std::string& content) {
  static const std::string folder = cache_folder();
  if (folder.empty()) return {};
  char name[64];
  const uint64_t first = fnv1a(content, 0xcbf29ce484222325ull),
                 second = fnv1a(content, first ^ 0x9ae16a3b2f90404full);
  std::snprintf(name, sizeof name, "%02x/%016lx%016lx.trnp", static_cast<unsigned>(first & 0xff),
                static_cast<unsigned long>(first), static_cast<unsigned long>(second));
  return folder + "/" + name;
}

struct Header {
  char magic[8];
  uint64_t content_bytes, program_bytes, checksum;
};

uint64_t checksum_of(std::string_view content, std::string_view program) {
  return fnv1a(program, fnv1a(content, 0xcbf29ce484222325ull));
}

// Null: compile. The file repeats the content, so that a hash collision is a miss and never a wrong program. A file of
// another version is a miss as well; a damaged one is said, and written anew.
std::shared_ptr<const std::vector<uint8_t>> read_cache(const std::string& path, const std::string& content) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return nullptr;
  Header header{};
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  const bool whole_header = in.gcount() == sizeof header;
  if (whole_header && std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 &&
      std::memcmp(header.magic, kMagic, sizeof kMagic - 1) == 0)
    return nullptr;
  std::error_code unknown;
  const uint64_t file_bytes = std::filesystem::file_size(path, unknown);
  std::string stored;
  auto program = std::make_shared<std::vector<uint8_t>>();
  bool good = whole_header && !unknown && std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
              header.content_bytes <= file_bytes && header.program_bytes <= file_bytes &&
              sizeof header + header.content_bytes + header.program_bytes == file_bytes;
  if (good) {
    stored.resize(header.content_bytes);
    program->resize(header.program_bytes);
    in.read(stored.data(), static_cast<std::streamsize>(stored.size()));
    in.read(reinterpret_cast<char*>(program->data()), static_cast<std::streamsize>(program->size()));
    const std::string_view bytes(reinterpret_cast<const char*>(program->data()), program->size());
    good = in && checksum_of(stored, bytes) == header.checksum;
  }
  if (!good) {
    TORCH_WARN("neuron: the compiled program ", isa::valid_utf8(path),
               " is damaged; it is compiled and written again. If this comes back, check the disk behind "
               "TORCH_NEURONX_NEFF_CACHE_DIR.");
    return nullptr;
  }
  return stored == content ? program : nullptr;
}

// A cache that cannot be written is no error: the program is there, the next process compiles again. It says so once.
void warn_unwritable(const std::string& path, const std::string& why) {
  TORCH_WARN_ONCE(
      "neuron: the folder of TORCH_NEURONX_NEFF_CACHE_DIR cannot be written: ", isa::valid_utf8(path), ": ",
      why,
      ". Programs are compiled again in every process; name a folder that can be written, or unset the "
      "variable.");
}

void write_cache(const std::string& path, const std::string& content, const std::vector<uint8_t>& program) {
  std::error_code failed, ignored;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, failed);
  if (failed) return warn_unwritable(folder.string(), failed.message());
  static std::atomic<uint64_t> writes{0};  // of this process: threads may write the same program
  const std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(writes.fetch_add(1)) + ".tmp";
  {
    errno = 0;
    std::ofstream out(temporary, std::ios::binary);
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.content_bytes = content.size();
    header.program_bytes = program.size();
    header.checksum = checksum_of(content, {reinterpret_cast<const char*>(program.data()), program.size()});
    out.write(reinterpret_cast<const char*>(&header), sizeof header);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.write(reinterpret_cast<const char*>(program.data()), static_cast<std::streamsize>(program.size()));
    if (!out.flush()) {
      const std::string why = errno != 0 ? std::generic_category().message(errno) : "writing failed";
      out.close();
      std::filesystem::remove(temporary, ignored);
      return warn_unwritable(temporary, why);
    }
  }
  std::filesystem::rename(temporary, path, failed);
  if (!failed) return;
  std::filesystem::remove(temporary, ignored);
  warn_unwritable(path, failed.message());
}

// Programs of this process by content. What was not used for the longest time goes when they get too large; plans keep
// what they have loaded.
class ProgramStore {
 public:
  std::optional<StoredProgram> find(const std::string& content) {
    std::lock_guard lock(mutex_);
    auto it = entries_.find(content);
    if (it == entries_.end()) return std::nullopt;
    order_.splice(order_.begin(), order_, it->second);
    return order_.front().program;
  }

  void insert(const std::string& content, const StoredProgram& program) {
    std::lock_guard lock(mutex_);
    if (entries_.count(content) != 0) return;
    order_.push_front({content, program});
    entries_.emplace(order_.front().content, order_.begin());
    bytes_ += bytes_of(order_.front());
    while (bytes_ > kMaxBytes && order_.size() > 1) {
      bytes_ -= bytes_of(order_.back());
      entries_.erase(order_.back().content);
      order_.pop_back();
    }
  }

 private:
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  struct Entry {
    std::string content;
    StoredProgram program;
  };
  static size_t bytes_of(const Entry& e) {
    return e.content.size() + e.program.message.size() +
           (e.program.container == nullptr ? 0 : e.program.container->size());
  }

  std::mutex mutex_;
  std::list<Entry> order_;  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> entries_;
  size_t bytes_ = 0;
};

}  // namespace

std::string graph_content(const compiler::Graph& graph) {
  ContentWriter w;
  w.text(graph.name);
  w.number<uint32_t>(static_cast<uint32_t>(graph.values.size()));
  for (const compiler::Value& v : graph.values) {
    w(v.type.dtype);
    w(v.type.sizes);
    w(v.type.strides);
    w(v.alias);
    w(v.view_of);
    w(v.offset);
  }
  for (const compiler::Node& node : graph.nodes) {
    w.text(node.op);
    w.number<uint32_t>(static_cast<uint32_t>(node.args.size()));
    for (const compiler::Arg& arg : node.args) {
      w.number<uint8_t>(static_cast<uint8_t>(arg.index()));
      std::visit(w, arg);
    }
    w(node.results);
  }
  w(graph.inputs);
  w(graph.outputs);
  w(graph.num_params);
  return w.take();
}

StoredProgram find_or_compile(const compiler::Graph& graph) {
  static auto* store = new ProgramStore;
  const std::string content = graph_content(graph);
  if (std::optional<StoredProgram> known = store->find(content)) return *known;
  StoredProgram result;
  const compiler::Compiler& library = compiler_library();
  std::string identity = target() + '\n' + compiler_version() + '\n' + content;
  if (physical_cores() > 1) identity += "\non two cores";
  const std::string path = cache_file(identity);
  if (!path.empty()) result.container = read_cache(path, identity);
  const bool compile = result.container == nullptr;
  result.from_disk = !compile;
  if (compile) {
    compiler::CompileOptions options;
    options.target = target();
    options.cores = physical_cores();
    if (env_flag("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", false)) {
      const char* folder = std::getenv("TORCH_NEURONX_DEBUG_DIR");
      options.dump_dir = folder != nullptr && *folder != 0 ? folder : "/tmp/neuron_backend";
    }
    compiler::CompileResult compiled = library.compile(graph, options);
    result.status = compiled.status;
    result.message = isa::valid_utf8(compiled.message);
    result.container = std::make_shared<std::vector<uint8_t>>(std::move(compiled.container));
    if (!path.empty() && result.status == compiler::CompileResult::Status::kOk)
      write_cache(path, identity, *result.container);
  }
  StoredProgram known = result;
  known.from_disk = false;
  store->insert(content, known);
  result.compiled = compile;
  return result;
}

}  // namespace trnsim::aten
