#include "isa/container.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "isa/names.h"
#include "isa/program.pb.h"

namespace trnsim::isa {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr uint32_t kOneCoreVersion = 4;
constexpr uint64_t kAlignment = 64;
constexpr uint8_t kMagic[8] = {0x89, 'T', 'R', 'N', 'P', '\r', '\n', 0x1a};
constexpr size_t kNeffHeaderBytes = 1024;

uint64_t align(uint64_t v) { return (v + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
void put(uint8_t* at, T v) {
  for (size_t i = 0; i < sizeof v; ++i) at[i] = static_cast<uint8_t>(v >> (8 * i));
}
template <typename T>
T get(const uint8_t* at) {
  T v = 0;
  for (size_t i = 0; i < sizeof v; ++i) v |= static_cast<T>(at[i]) << (8 * i);
  return v;
}

uint32_t checksum(const uint8_t* data, size_t size) {
  return static_cast<uint32_t>(crc32_z(crc32_z(0, nullptr, 0), data, size));
}

bool fail(ContainerError* error, ContainerError::Kind kind, std::string message) {
  if (error != nullptr) *error = {kind, std::move(message)};
  return false;
}
bool invalid(ContainerError* error, const std::string& why) {
  return fail(error, ContainerError::Kind::kInvalid,
              "user error: the program container is damaged: " + why +
                  ". Write it again, or copy it in binary mode.");
}

// A NEFF starts with a 1024-byte header: package version, header size, data size (64-bit each).
bool looks_like_neff(ByteRange file) {
  if (file.size < 24) return false;
  const auto version = get<uint64_t>(file.data);
  return version < 256 && get<uint64_t>(file.data + 8) == kNeffHeaderBytes;
}

std::string first_bytes(ByteRange file) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(file.size, 8); ++i) {
    constexpr char kHex[] = "0123456789abcdef";
    if (i) text += ' ';
    text += kHex[file.data[i] >> 4];
    text += kHex[file.data[i] & 15];
  }
  return text;
}

class StringTable {
 public:
  explicit StringTable(proto::Program& program) : program_(program) {}
  uint32_t index(const std::string& s) {
    const auto [it, is_new] = indices_.try_emplace(s, static_cast<uint32_t>(program_.strings_size()));
    if (is_new) program_.add_strings(s);
    return it->second;
  }

 private:
  proto::Program& program_;
  std::unordered_map<std::string, uint32_t> indices_;
};

bool in_payload(uint64_t offset, uint64_t bytes, uint64_t payload_bytes) {
  return offset <= payload_bytes && bytes <= payload_bytes - offset;
}

bool read_metadata(const proto::Program& m, ByteRange payload, LoadedContainer& out, ContainerError* error) {
  out.name = m.name();
  out.target = m.target();
  out.flops = m.flops();
  out.hbm_bytes = m.hbm_bytes();
  out.tensors.resize(m.tensors_size());
  out.constants.resize(m.tensors_size());
  for (int i = 0; i < m.tensors_size(); ++i) {
    const proto::Tensor& t = m.tensors(i);
    TensorDecl& d = out.tensors[i];
    d.name = t.name();
    if (t.kind() > static_cast<uint32_t>(TensorKind::kScratch)) {
      return invalid(error, "tensor " + t.name() + " has unknown kind " + std::to_string(t.kind()));
    }
    d.kind = static_cast<TensorKind>(t.kind());
    const auto dtype = dtype_from_name(t.dtype());
    if (!dtype) return invalid(error, "tensor " + t.name() + " has unknown dtype '" + t.dtype() + "'");
    d.dtype = *dtype;
    d.shape.assign(t.shape().begin(), t.shape().end());
    d.bytes = t.bytes();
    if (!in_payload(t.constant_offset(), t.constant_bytes(), payload.size)) {
      return invalid(error, "the contents of tensor " + t.name() + " lie outside the file");
    }
    if (t.constant_bytes() != 0) {
      out.constants[i] = {payload.data + t.constant_offset(), static_cast<size_t>(t.constant_bytes())};
    }
  }
  out.cores = static_cast<int>(std::max<uint32_t>(m.cores(), 1));
  if (m.cores() > kMaxCores) {
    return invalid(error, "it is for " + std::to_string(m.cores()) + " physical cores; a logical core has " +
                              std::to_string(kMaxCores) + " at most");
  }
  for (const proto::Stream& s : m.streams()) {
    if (s.engine() >= kNumEngines) return invalid(error, "unknown engine " + std::to_string(s.engine()));
    if (s.core() >= static_cast<uint32_t>(out.cores)) {
      return invalid(error, "a stream belongs to core " + std::to_string(s.core()) + " of a program of " +
                                std::to_string(out.cores));
    }
    if (!in_payload(s.offset(), s.bytes(), payload.size) || s.instructions() > s.bytes() / 2) {
      return invalid(error, "the stream of engine " + std::string(name(static_cast<Engine>(s.engine()))) +
                                " lies outside the file");
    }
    out.streams[stream_number(static_cast<int>(s.core()), static_cast<Engine>(s.engine()))] = {
        {payload.data + s.offset(), static_cast<size_t>(s.bytes())}, s.instructions()};
  }
  const int locations = m.location_file_size();
  if (m.location_line_size() != locations || m.location_what_size() != locations) {
    return invalid(error, "the columns of the source locations differ in length");
  }
  out.locations.resize(std::max(locations, 1));
  for (int i = 0; i < locations; ++i) {
    const uint32_t file = m.location_file(i), what = m.location_what(i);
    if (file >= static_cast<uint32_t>(m.strings_size()) || what >= static_cast<uint32_t>(m.strings_size())) {
      return invalid(error, "source location " + std::to_string(i) + " names an unknown string");
    }
    out.locations[i] = {m.strings(file), m.location_line(i), m.strings(what)};
  }
  out.notes.reserve(m.notes_size());
  for (const proto::Note& n : m.notes()) out.notes.emplace_back(n.key(), n.value());
  return true;
}

}  // namespace

std::vector<uint8_t> write_container(const Program& program) {
  proto::Program m;
  m.set_name(program.name);
  m.set_target(program.target);
  m.set_flops(program.flops);
  m.set_hbm_bytes(program.hbm_bytes);

  if (program.cores > 1) m.set_cores(static_cast<uint32_t>(program.cores));

  std::vector<uint8_t> payload;
  for (size_t n = 0; n < program.streams.size(); ++n) {
    const auto& stream = program.streams[n];
    if (stream.empty()) continue;
    proto::Stream* s = m.add_streams();
    s->set_engine(static_cast<uint32_t>(engine_of_stream(n)));
    if (core_of_stream(n) != 0) s->set_core(static_cast<uint32_t>(core_of_stream(n)));
    s->set_offset(payload.size());
    for (const Instruction& i : stream) encode(i, payload);
    s->set_bytes(payload.size() - s->offset());
    s->set_instructions(stream.size());
  }
  uint64_t position = payload.size();
  for (const TensorDecl& d : program.tensors) {
    proto::Tensor* t = m.add_tensors();
    t->set_name(d.name);
    t->set_kind(static_cast<uint32_t>(d.kind));
    t->set_dtype(std::string(dtype_name(d.dtype)));
    for (int64_t n : d.shape) t->add_shape(n);
    t->set_bytes(d.bytes);
    if (!d.constant.empty()) {
      position = align(position);
      t->set_constant_offset(position);
      t->set_constant_bytes(d.constant.size());
      position += d.constant.size();
    }
  }
  const uint64_t payload_bytes = position;

  StringTable strings(m);
  for (const SourceLocation& l : program.locations) {
    m.add_location_file(strings.index(l.file));
    m.add_location_line(l.line);
    m.add_location_what(strings.index(l.what));
  }
  for (const auto& [key, value] : program.notes) {
    proto::Note* n = m.add_notes();
    n->set_key(key);
    n->set_value(value);
  }

  const size_t metadata_bytes = m.ByteSizeLong();
  const size_t payload_start = align(kHeaderBytes + metadata_bytes);
  std::vector<uint8_t> file(payload_start + payload_bytes);
  m.SerializeWithCachedSizesToArray(file.data() + kHeaderBytes);
  if (!payload.empty()) std::memcpy(file.data() + payload_start, payload.data(), payload.size());
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    const auto& constant = program.tensors[i].constant;
    if (constant.empty()) continue;
    std::memcpy(file.data() + payload_start + m.tensors(static_cast<int>(i)).constant_offset(),
                constant.data(), constant.size());
  }
  std::memcpy(file.data(), kMagic, sizeof kMagic);
  put<uint32_t>(file.data() + 8, program.cores > 1 ? kContainerVersion : kOneCoreVersion);
  put<uint32_t>(file.data() + 12, static_cast<uint32_t>(metadata_bytes));
  put<uint64_t>(file.data() + 16, payload_bytes);
  put<uint32_t>(file.data() + 24, checksum(file.data() + kHeaderBytes, payload_start - kHeaderBytes));
  put<uint32_t>(file.data() + 28, checksum(file.data() + payload_start, payload_bytes));
  return file;
}

bool read_container(ByteRange file, LoadedContainer& out, ContainerError* error) {
  using Kind = ContainerError::Kind;
  out = LoadedContainer{};
  if (file.size < sizeof kMagic || std::memcmp(file.data, kMagic, sizeof kMagic) != 0) {
    if (file.size > 0 && file.size < sizeof kMagic && std::memcmp(file.data, kMagic, file.size) == 0) {
      return invalid(error, "it ends after " + std::to_string(file.size) + " bytes");
    }
    if (looks_like_neff(file)) {
      return fail(
          error, Kind::kNeff,
          "not simulated: this is a NEFF, a program of the AWS compiler. Its instruction encoding is not "
          "public, so it is refused. Compile the model with trnsim's own compiler, which writes .trnp.");
    }
    return fail(error, Kind::kNotAContainer,
                "user error: this is not a program container (.trnp): " +
                    (file.size == 0 ? std::string("the file is empty")
                                    : "it starts with bytes " + first_bytes(file)) +
                    ". Assembler text (.trnasm) has to be assembled first.");
  }
  if (file.size < kHeaderBytes) {
    return invalid(error, "it ends inside the header, after " + std::to_string(file.size) + " of " +
                              std::to_string(kHeaderBytes) + " bytes");
  }
  const auto version = get<uint32_t>(file.data + 8);
  if (version > kContainerVersion) {
    return fail(error, Kind::kNewerVersion,
                "user error: the program container has format version " + std::to_string(version) +
                    "; this build reads up to version " + std::to_string(kContainerVersion) +
                    ". Update trnsim, or compile the program again with this version.");
  }
  if (version == 0) return invalid(error, "format version 0 never existed");
  if (version < kOneCoreVersion) {
    return invalid(error, "it has format version " + std::to_string(version) +
                              ", whose instructions are coded otherwise; compile the program again");
  }
  const uint64_t metadata_bytes = get<uint32_t>(file.data + 12);
  const auto payload_bytes = get<uint64_t>(file.data + 16);
  const uint64_t payload_start = align(kHeaderBytes + metadata_bytes);
  if (payload_start > file.size || payload_bytes != file.size - payload_start) {
    const bool overflow = payload_bytes > UINT64_MAX - payload_start;
    return invalid(error, "its header announces " +
                              (overflow ? std::string("more than 2^64")
                                        : std::to_string(payload_start + payload_bytes)) +
                              " bytes, the file has " + std::to_string(file.size));
  }
  if (checksum(file.data + kHeaderBytes, payload_start - kHeaderBytes) != get<uint32_t>(file.data + 24)) {
    return invalid(error, "the checksum of the metadata does not match");
  }
  const ByteRange payload{file.data + payload_start, static_cast<size_t>(payload_bytes)};
  if (checksum(payload.data, payload.size) != get<uint32_t>(file.data + 28)) {
    return invalid(error, "the checksum of the instructions and constants does not match");
  }
  proto::Program metadata;
  const bool parsed_two_cores = version == kContainerVersion;
  if (metadata_bytes > INT32_MAX ||
      !metadata.ParseFromArray(file.data + kHeaderBytes, static_cast<int>(metadata_bytes))) {
    return invalid(error, "the metadata cannot be parsed");
  }
  if (parsed_two_cores != (metadata.cores() > 1)) {
    return invalid(error, "format version " + std::to_string(version) + " does not go with " +
                              std::to_string(std::max<uint32_t>(metadata.cores(), 1)) + " physical cores");
  }
  return read_metadata(metadata, payload, out, error);
}

bool decode_program(const LoadedContainer& container, Program& out, std::string* error) {
  out = Program{};
  out.name = container.name;
  out.target = container.target;
  out.tensors = container.tensors;
  for (size_t i = 0; i < out.tensors.size(); ++i) {
    const ByteRange c = container.constants[i];
    out.tensors[i].constant.assign(c.data, c.data + c.size);
  }
  out.locations = container.locations;
  out.notes = container.notes;
  out.flops = container.flops;
  out.hbm_bytes = container.hbm_bytes;
  out.cores = container.cores;
  for (size_t n = 0; n < out.streams.size(); ++n) {
    std::string why;
    const StreamRange& s = container.streams[n];
    if (!decode_stream(s.bytes, s.instructions, out.streams[n], &why)) {
      if (error != nullptr) {
        *error = "user error: the program container is damaged: engine " +
                 std::string(name(engine_of_stream(n))) + ": " + why;
      }
      return false;
    }
  }
  return true;
}

bool read_program(ByteRange file, Program& out, ContainerError* error) {
  LoadedContainer container;
  if (!read_container(file, container, error)) return false;
  std::string message;
  if (!decode_program(container, out, &message)) return fail(error, ContainerError::Kind::kInvalid, message);
  return true;
}

}  // namespace trnsim::isa
