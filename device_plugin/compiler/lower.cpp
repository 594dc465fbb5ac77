#include "device_plugin/compiler/lower.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trnsim::compiler {
namespace {

// Function-local so that rows of any translation unit may register during static initialisation.
std::map<std::string, LowerRow>& table() {
  static std::map<std::string, LowerRow> rows;
  return rows;
}

void add_row(LowerRow row) {
  std::string name = row.name;
  if (!table().emplace(name, std::move(row)).second) throw_internal("two lowerings for " + name);
}

// Elements from element 0 to the last one touched.
int64_t extent(const TensorType& t) {
  int64_t last = 0;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return last + 1;
}

int64_t view_end(const View& v) {
  const int64_t elements = extent({v.dtype, v.sizes, v.strides});
  return elements == 0 ? 0 : v.offset + elements;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

}  // namespace

LowerRegistration::LowerRegistration(const char* name, LowerFn fn, uint64_t const_args, bool random) {
  add_row({name, fn, const_args, random});
}
LowerRegistration::LowerRegistration(std::vector<LowerRow> rows) {
  for (LowerRow& r : rows) add_row(std::move(r));
}

const std::vector<LowerRow>& lower_rows() {
  static const std::vector<LowerRow> rows = [] {
    std::vector<LowerRow> out;
    for (const auto& [name, row] : table()) out.push_back(row);
    return out;
  }();
  return rows;
}

const LowerRow* find_lower_row(const std::string& op) {
  auto it = table().find(op);
  return it == table().end() ? nullptr : &it->second;
}

KernelList lower_graph(const Graph& graph) {
  KernelList list;
  list.name = graph.name;
  list.num_params = graph.num_params;
  LowerContext context(graph, list);
  for (const Node& node : graph.nodes) {
    const LowerRow* row = find_lower_row(node.op);
    if (!row) throw_unsupported(node.op + " has no lowering to the device");
    context.begin(node);
    row->fn(context);
  }
  return list;
}

// ---- LowerContext
// ------------------------------------------------------------------------------------------------

LowerContext::LowerContext(const Graph& graph, KernelList& list)
    : graph_(graph), list_(list), buffer_of_value_(graph.values.size(), -1) {
  auto add = [&](ValueId id, Buffer::Kind kind, size_t index) {
    const TensorType& t = graph.values.at(static_cast<size_t>(id)).type;
    Buffer b;
    b.kind = kind;
    b.dtype = t.dtype;
    b.elements = extent(t);
    b.index = static_cast<int32_t>(index);
    buffer_of_value_[static_cast<size_t>(id)] = static_cast<int32_t>(list_.buffers.size());
    list_.buffers.push_back(std::move(b));
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) add(graph.inputs[i], Buffer::Kind::kInput, i);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    ValueId id = graph.outputs[i];
    if (buffer_of_value_.at(static_cast<size_t>(id)) >= 0) {
      throw_internal("value %" + std::to_string(id) + " is listed twice among inputs and outputs");
    }
    add(id, Buffer::Kind::kOutput, i);
    ValueId alias = graph.values[static_cast<size_t>(id)].alias;
    auto position = std::find(graph.inputs.begin(), graph.inputs.end(), alias);
    if (alias != kNoValue && position != graph.inputs.end()) {
      list_.buffers.back().alias_input = static_cast<int32_t>(position - graph.inputs.begin());
    }
  }
}

void LowerContext::begin(const Node& node) { node_ = &node; }

const Arg& LowerContext::arg(int i) const {
  if (i < 0 || i >= num_args()) {
    throw_internal(node_->op + ": argument " + std::to_string(i) + " is missing; the node has " +
                   std::to_string(num_args()));
  }
  return node_->args[static_cast<size_t>(i)];
}

bool LowerContext::is_none(int i) const {
  const Arg& a = arg(i);
  const ValueId* id = std::get_if<ValueId>(&a);
  return std::holds_alternative<Optional>(a) || (id && *id == kNoValue);
}

bool LowerContext::is_tensor(int i) const {
  const ValueId* id = std::get_if<ValueId>(&arg(i));
  return id && *id != kNoValue;
}

ValueId LowerContext::value_id(int i) const {
  const ValueId* id = std::get_if<ValueId>(&arg(i));
  if (!id || *id == kNoValue) {
    throw_internal(node_->op + ": argument " + std::to_string(i) + " has to be a tensor");
  }
  return *id;
}

const TensorType& LowerContext::type(int i) const {
  static const TensorType kFloatNumber{Dtype::kF32, {}, {}}, kIntNumber{Dtype::kI32, {}, {}};
  if (const ParamRef* p = std::get_if<ParamRef>(&arg(i)))  // a 0-dim CPU tensor
    return p->dtype == Dtype::kF32 ? kFloatNumber : kIntNumber;
  if (constant(i)) return std::holds_alternative<double>(arg(i)) ? kFloatNumber : kIntNumber;
  return graph_.values.at(static_cast<size_t>(value_id(i))).type;
}

View LowerContext::view_of(ValueId id) {
  const Value& value = graph_.values.at(static_cast<size_t>(id));
  if (value.view_of != kNoValue) {
    View v = view_of(value.view_of);
    v.dtype = value.type.dtype;
    v.offset += value.offset;
    v.sizes = value.type.sizes;
    v.strides = value.type.strides;
    if (view_end(v) > list_.buffers[static_cast<size_t>(v.buffer)].elements)
      throw_internal("the view %" + std::to_string(id) + " goes beyond its base");
    return v;
  }
  int32_t& buffer = buffer_of_value_[static_cast<size_t>(id)];
  if (buffer < 0 && value.alias != kNoValue) buffer = view_of(value.alias).buffer;
  if (buffer < 0) {  // a value between two nodes
    Buffer b;
    b.dtype = value.type.dtype;
    b.elements = extent(value.type);
    buffer = static_cast<int32_t>(list_.buffers.size());
    list_.buffers.push_back(std::move(b));
  }
  View v;
  v.buffer = buffer;
  v.dtype = value.type.dtype;
  v.sizes = value.type.sizes;
  v.strides = value.type.strides;
  return v;
}

View LowerContext::in(int i) {
  const Arg& a = arg(i);
  if (const ParamRef* p = std::get_if<ParamRef>(&a)) {  // a 0-dim CPU tensor
    View v = scratch(p->dtype, {});
    MapBuilder m(*this, {});
    m.output(v, m.param(*p));
    m.emit();
    return v;
  }
  if (!std::holds_alternative<Optional>(a) && constant(i)) {
    View v = scratch(std::holds_alternative<double>(a) ? Dtype::kF32 : Dtype::kI32, {});
    MapBuilder m(*this, {});
    m.output(v, m.operand(i));
    m.emit();
    return v;
  }
  return view_of(value_id(i));
}

std::vector<View> LowerContext::in_list(int i) {
  const ValueList* list = std::get_if<ValueList>(&arg(i));
  if (!list) throw_internal(node_->op + ": argument " + std::to_string(i) + " has to be a list of tensors");
  std::vector<View> out;
  for (ValueId id : list->ids) out.push_back(id == kNoValue ? View{} : view_of(id));
  return out;
}

int64_t LowerContext::int_arg(int i) const {
  const Arg& a = arg(i);
  if (const int64_t* v = std::get_if<int64_t>(&a)) return *v;
  if (const bool* v = std::get_if<bool>(&a)) return *v;
  throw_internal(node_->op + ": argument " + std::to_string(i) + " has to be an integer");
}

int64_t LowerContext::int_or(int i, int64_t otherwise) const { return is_none(i) ? otherwise : int_arg(i); }

bool LowerContext::flag(int i) const { return !is_none(i) && int_arg(i) != 0; }

std::vector<int64_t> LowerContext::ints(int i) const {
  if (is_none(i)) return {};
  if (const auto* v = std::get_if<std::vector<int64_t>>(&arg(i))) return *v;
  return {int_arg(i)};
}

std::vector<int64_t> LowerContext::ints(int i, size_t n) const {
  std::vector<int64_t> v = ints(i);
  if (v.size() == 1) v.resize(n, v[0]);
  if (!v.empty() && v.size() != n) {
    refuse("argument " + std::to_string(i) + " has " + std::to_string(v.size()) + " entries, expected " +
           std::to_string(n));
  }
  return v;
}

std::string LowerContext::str(int i) const {
  const std::string* s = std::get_if<std::string>(&arg(i));
  return s ? *s : std::string();
}

std::optional<double> LowerContext::constant(int i) const {
  const Arg& a = arg(i);
  if (const double* v = std::get_if<double>(&a)) return *v;
  if (const int64_t* v = std::get_if<int64_t>(&a)) return static_cast<double>(*v);
  if (const bool* v = std::get_if<bool>(&a)) return *v ? 1.0 : 0.0;
  return std::nullopt;
}

double LowerContext::constant_or_refuse(int i, const char* name) const {
  auto c = constant(i);
  if (!c) refuse(std::string("`") + name + "` has to be a constant of the program");
  return *c;
}

bool LowerContext::wanted(int i) const {
  return i < num_results() && node_->results[static_cast<size_t>(i)] != kNoValue;
}

const TensorType& LowerContext::out_type(int i) const {
  if (!wanted(i)) throw_internal(node_->op + ": result " + std::to_string(i) + " is missing");
  return graph_.values.at(static_cast<size_t>(node_->results[static_cast<size_t>(i)])).type;
}

View LowerContext::out(int i) {
  out_type(i);
  return view_of(node_->results[static_cast<size_t>(i)]);
}

View LowerContext::scratch(Dtype dtype, const std::vector<int64_t>& sizes) {
  View v;
  v.dtype = dtype;
  v.sizes = sizes;
  v.strides = contiguous_strides(sizes);
  Buffer b;
  b.dtype = dtype;
  b.elements = v.numel();
  v.buffer = static_cast<int32_t>(list_.buffers.size());
  list_.buffers.push_back(std::move(b));
  return v;
}

View LowerContext::constant_buffer(Dtype dtype, const std::vector<int64_t>& sizes,
                                   std::vector<uint8_t> contents) {
  View v = scratch(dtype, sizes);
  Buffer& b = list_.buffers.back();
  b.kind = Buffer::Kind::kConstant;
  b.constant = std::move(contents);
  return v;
}

void LowerContext::emit(Kernel kernel) {
  list_.kernels.push_back(std::move(kernel));
  std::string where = node_ ? node_->op : std::string();
  if (node_ && !node_->file.empty()) where += " (" + node_->file + ":" + std::to_string(node_->line) + ")";
  list_.locations.push_back(std::move(where));
}

void LowerContext::copy(const View& dst, const View& src) {
  if (dst.numel() == 0) return;
  emit(MoveKernel{view_expanded(src, dst.sizes), dst});
}

bool LowerContext::meets(Dtype dtype) const {
  for (int i = 0; i < num_args(); ++i)
    if (is_tensor(i) && type(i).dtype == dtype) return true;
  for (int i = 0; i < num_results(); ++i)
    if (wanted(i) && out_type(i).dtype == dtype) return true;
  return false;
}

void LowerContext::fill(const View& dst, double value) {
  MapBuilder m(*this, dst.sizes);
  m.output(dst, m.constant(value, compute_dtype(dst.dtype)));
  m.emit();
}

void LowerContext::check(const View& v, std::string words, const std::function<Ex(Ex)>& bad) {
  if (view_empty(v)) return;
  const View row = scratch(Dtype::kI32, {});
  MapBuilder m(*this, v.sizes, 0);
  m.row_output(row, m.reduce(ReduceOp::kAny, bad(m.input(v))));
  m.emit();
  emit(CheckKernel{row, {std::move(words)}, 0});
}

bool LowerContext::shares_memory(int i, int result) {
  if (!wanted(result) || !is_tensor(i)) return false;
  int32_t buffer_in = in(i).buffer, buffer_out = out(result).buffer;
  const Buffer& a = list_.buffers[static_cast<size_t>(buffer_in)];
  const Buffer& b = list_.buffers[static_cast<size_t>(buffer_out)];
  auto same_input = [](const Buffer& input, const Buffer& output) {
    return input.kind == Buffer::Kind::kInput && output.alias_input == input.index;
  };
  return buffer_in == buffer_out || same_input(a, b) || same_input(b, a);
}

bool LowerContext::aliases(int i, int result) {
  if (!shares_memory(i, result)) return false;
  const View a = in(i), b = out(result);
  return a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides;
}

View LowerContext::in_unaliased(int i, int result) {
  View v = in(i);
  if (!shares_memory(i, result)) return v;
  View s = scratch(v.dtype, v.sizes);
  copy(s, v);
  return s;
}

void LowerContext::refuse(const std::string& reason) const { throw_unsupported(node_->op + ": " + reason); }

}  // namespace trnsim::compiler
