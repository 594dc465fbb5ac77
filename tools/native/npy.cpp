#include "tools/native/npy.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "tools/native/bytes.h"

namespace trnsim::native {

namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr size_t kAlignment = 64;
constexpr size_t kMaxElements = size_t{1} << 40;

// NumPy's type of a dtype, empty when it has none.
std::string descr_of(isa::Dtype d) {
  using D = isa::Dtype;
  switch (d) {
    case D::kF32:
    case D::kF32R:
      return "<f4";
    case D::kF16:
      return "<f2";
    case D::kF64:
      return "<f8";
    case D::kI64:
      return "<i8";
    case D::kI32:
      return "<i4";
    case D::kI16:
      return "<i2";
    case D::kI8:
      return "|i1";
    case D::kU32:
      return "<u4";
    case D::kU16:
      return "<u2";
    case D::kU8:
      return "|u1";
    case D::kBool:
      return "|b1";
    default:
      return "";
  }
}

size_t element_bytes(const std::string& descr) {
  if (descr.size() < 3 || descr[0] == '>') return 0;
  size_t n = 0;
  for (size_t i = 2; i < descr.size(); ++i) {
    if (descr[i] < '0' || descr[i] > '9' || n > 1000) return 0;
    n = n * 10 + static_cast<size_t>(descr[i] - '0');
  }
  return n;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return s + "]";
}

std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](int64_t d) { return d != 1; });
  return out;
}

// Value of 'key' in the header, a Python dict on one line: a quoted text, a word, or a tuple.
std::string field(const std::string& header, const std::string& key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  at = header.find(':', at);
  if (at == std::string::npos) return "";
  at = header.find_first_not_of(" ", at + 1);
  if (at == std::string::npos) return "";
  if (header[at] == '\'') return header.substr(at + 1, header.find('\'', at + 1) - at - 1);
  if (header[at] == '(') return header.substr(at, header.find(')', at) - at + 1);
  return header.substr(at, header.find_first_of(",}", at) - at);
}

bool parse_shape(const std::string& text, std::vector<int64_t>* shape) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return false;
  int64_t value = -1;
  size_t elements = 1;
  for (size_t i = 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      value = (value < 0 ? 0 : value) * 10 + (c - '0');
      if (value > static_cast<int64_t>(kMaxElements)) return false;
    } else if (c == ',' || c == ')') {
      if (value >= 0) {
        shape->push_back(value);
        if (value != 0 && elements > kMaxElements / static_cast<size_t>(value)) return false;
        elements *= static_cast<size_t>(value);
      }
      value = -1;
    } else if (c != ' ') {
      return false;
    }
  }
  return true;
}

double load_float(const uint8_t* p, size_t bytes) {
  if (bytes == 8) {
    double v;
    std::memcpy(&v, p, 8);
    return v;
  }
  return isa::load_as_f32(bytes == 4 ? isa::Dtype::kF32 : isa::Dtype::kF16, p);
}

}  // namespace

bool read_npy(const std::string& path, Array* out, std::string* error) {
  const auto refuse = [&](const std::string& why) {
    *error = "user error: " + path + ": " + why;
    return false;
  };
  std::vector<uint8_t> file;
  if (!read_file(path, &file, error)) return false;
  if (file.size() < kMagicBytes + 4 || std::memcmp(file.data(), kMagic, kMagicBytes) != 0)
    return refuse("is no .npy file");
  const int version = file[kMagicBytes];
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3)
    return refuse("has .npy version " + std::to_string(version) + "; 1 to 3 are read");
  size_t length = 0;
  const size_t start = kMagicBytes + 2 + length_bytes;
  if (file.size() < start) return refuse("is truncated");
  for (size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<size_t>(file[kMagicBytes + 2 + i]) << (8 * i);
  if (length > file.size() - start) return refuse("is truncated");
  const std::string header(file.begin() + static_cast<std::ptrdiff_t>(start),
                           file.begin() + static_cast<std::ptrdiff_t>(start + length));
  Array a;
  a.descr = field(header, "descr");
  const size_t size = element_bytes(a.descr);
  if (size == 0 || a.descr[1] == 'O' || a.descr[1] == 'U')
    return refuse("has element type '" + a.descr + "'; little-endian numbers are read");
  if (field(header, "fortran_order") != "False")
    return refuse("is in Fortran order; save numpy.ascontiguousarray(x)");
  if (!parse_shape(field(header, "shape"), &a.shape)) return refuse("has a damaged header");
  size_t elements = 1;
  for (int64_t d : a.shape) elements *= static_cast<size_t>(d);
  if (file.size() - start - length != elements * size)
    return refuse("holds " + std::to_string(file.size() - start - length) +
                  " bytes of data; its header says " + std::to_string(elements * size));
  a.bytes.assign(file.begin() + static_cast<std::ptrdiff_t>(start + length), file.end());
  *out = std::move(a);
  return true;
}

bool write_npy(const std::string& path, const Array& array, std::string* error) {
  std::string header = "{'descr': '" + array.descr + "', 'fortran_order': False, 'shape': (";
  for (int64_t d : array.shape) header += std::to_string(d) + ", ";
  if (array.shape.size() > 1) header.resize(header.size() - 2);
  header += "), }";
  const size_t prefix = kMagicBytes + 4;
  header.append((kAlignment - (prefix + header.size() + 1) % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::vector<uint8_t> file(kMagic, kMagic + kMagicBytes);
  for (const size_t byte :
       {size_t{1}, size_t{0}, header.size() & 0xff, header.size() >> 8})  // version, length
    file.push_back(static_cast<uint8_t>(byte));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), array.bytes.begin(), array.bytes.end());
  return write_file(path, file, error);
}

bool to_tensor(const Array& array, isa::Dtype dtype, const std::vector<int64_t>& shape,
               std::vector<uint8_t>* out, std::string* error) {
  if (without_ones(array.shape) != without_ones(shape)) {
    *error = "shape " + shape_text(array.shape) + " does not fit " + shape_text(shape);
    return false;
  }
  const size_t from = element_bytes(array.descr);
  const size_t to = isa::dtype_bytes(dtype);
  const char kind = array.descr[1];
  if (array.descr == descr_of(dtype)) {
    *out = array.bytes;
    return true;
  }
  const bool raw = from == to && (kind == 'V' || (kind == 'u' && descr_of(dtype).empty()));
  if (raw) {
    *out = array.bytes;
    return true;
  }
  if (kind == 'f' && isa::is_float(dtype) && (from == 2 || from == 4 || from == 8)) {
    const size_t n = array.bytes.size() / from;
    out->resize(n * to);
    for (size_t i = 0; i < n; ++i) {
      const double v = load_float(&array.bytes[i * from], from);
      if (dtype == isa::Dtype::kF64)
        std::memcpy(&(*out)[i * to], &v, to);
      else
        isa::store_from_f32(dtype, &(*out)[i * to], static_cast<float>(v));
    }
    return true;
  }
  *error = "element type '" + array.descr + "' does not fit " + std::string(isa::dtype_name(dtype)) +
           "; convert it with numpy.astype first";
  return false;
}

Array from_tensor(const std::vector<uint8_t>& bytes, isa::Dtype dtype, const std::vector<int64_t>& shape) {
  Array a;
  a.shape = shape;
  a.descr = descr_of(dtype);
  if (!a.descr.empty()) {
    a.bytes = bytes;
    return a;
  }
  a.descr = "<f4";
  const size_t size = isa::dtype_bytes(dtype);
  const size_t n = bytes.size() / size;
  a.bytes.resize(n * sizeof(float));
  for (size_t i = 0; i < n; ++i) {
    const float v = isa::load_as_f32(dtype, &bytes[i * size]);
    std::memcpy(&a.bytes[i * sizeof(float)], &v, sizeof v);
  }
  return a;
}

}  // namespace trnsim::native
