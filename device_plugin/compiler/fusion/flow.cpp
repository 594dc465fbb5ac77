#include "device_plugin/compiler/fusion/flow.h"

#include <algorithm>

#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {

Flow::Flow(KernelList& list) : list_(list), memory_(memory_of_buffers(list.buffers)) {
  live_.resize(list.buffers.size());
  all_.resize(list.buffers.size());
  for (size_t m = 0; m < list.buffers.size(); ++m) {  // the contents at the start
    FlowValue v;
    v.memory = static_cast<int>(m);
    values_.push_back(v);
  }
  nodes_.resize(list.kernels.size());
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    const int n = static_cast<int>(i);
    FlowNode& node = nodes_[i];
    if (i < list.locations.size()) node.location = list.locations[i];
    Kernel& kernel = list.kernels[i];
    node.pinned = std::holds_alternative<CheckKernel>(kernel);
    const std::vector<Use> uses = uses_of(kernel);
    std::vector<std::vector<int>> reads(uses.size());
    std::vector<int> writes(uses.size(), -1);
    for (size_t u = 0; u < uses.size(); ++u) {
      if (uses[u].reads) reads[u] = read(n, *uses[u].view);
    }
    for (size_t u = 0; u < uses.size(); ++u) {
      if (uses[u].writes) writes[u] = write(n, *uses[u].view);
    }
    if (auto* map = std::get_if<MapKernel>(&kernel)) node.map = form_of(*map);
    if (auto* move = std::get_if<MoveKernel>(&kernel)) node.map = form_of(*move);
    if (node.map) {
      for (size_t u = 0; u < node.map->inputs.size(); ++u) {
        node.map->inputs[u].value = reads[u].front();
        node.map->inputs[u].others.assign(reads[u].begin() + 1, reads[u].end());
      }
      for (size_t u = 0; u < node.map->outputs.size(); ++u)
        node.map->outputs[u].value = writes[node.map->inputs.size() + u];
    } else {
      node.kernel = std::move(kernel);
      node.reads = std::move(reads);
      node.writes = std::move(writes);
    }
    alias_.push_back(n);
    order_.push_back(n);
    position_.push_back(n);
  }
  stamp_.assign(nodes_.size(), 0);
  for (size_t m = 0; m < live_.size(); ++m) {
    const Buffer::Kind kind = list.buffers[m].kind;
    if (kind != Buffer::Kind::kOutput && kind != Buffer::Kind::kInput) continue;
    for (int v : live_[m]) values_[static_cast<size_t>(v)].escapes = true;
  }
}

std::vector<int> Flow::read(int n, const View& v) {
  const int memory = memory_of(v.buffer);
  std::vector<int> sources;
  const std::vector<int>& live = live_[static_cast<size_t>(memory)];
  for (size_t i = live.size(); i-- > 0;) {
    FlowValue& w = value(live[i]);
    const Meeting meeting = meet(w.view, v);
    if (meeting == Meeting::kDisjoint) continue;
    sources.push_back(live[i]);
    w.readers.push_back(n);
    if (w.writer != n) node(w.writer).next.push_back(n);
    if (meeting == Meeting::kCovers) return sources;
  }
  value(memory).readers.push_back(n);
  sources.push_back(memory);
  return sources;
}

int Flow::write(int n, const View& v) {
  const int memory = memory_of(v.buffer);
  auto after = [&](const FlowValue& w) {
    if (w.writer >= 0 && w.writer != n) node(w.writer).next.push_back(n);
    for (int r : w.readers) {
      if (r != n) node(r).next.push_back(n);
    }
  };
  std::vector<int>& live = live_[static_cast<size_t>(memory)];
  for (int id : all_[static_cast<size_t>(memory)]) {
    FlowValue& w = value(id);
    const Meeting meeting = meet(v, w.view);
    if (meeting == Meeting::kDisjoint) continue;
    w.overwritten = true;
    after(w);
    if (meeting == Meeting::kCovers) live.erase(std::remove(live.begin(), live.end(), id), live.end());
  }
  value(memory).overwritten = true;
  after(value(memory));
  FlowValue own;
  own.memory = memory;
  own.writer = n;
  own.view = v;
  values_.push_back(std::move(own));
  const int result = static_cast<int>(values_.size() - 1);
  live.push_back(result);
  all_[static_cast<size_t>(memory)].push_back(result);
  return result;
}

void Flow::set_order(const std::vector<int>& order) {
  order_ = order;
  for (size_t p = 0; p < order.size(); ++p) position_[static_cast<size_t>(order[p])] = static_cast<int>(p);
}

int Flow::find(int n) {
  while (alias_[static_cast<size_t>(n)] != n) {
    int& up = alias_[static_cast<size_t>(n)];
    up = alias_[static_cast<size_t>(up)];
    n = up;
  }
  return n;
}

int Flow::only_reader(int value, int besides) {
  const FlowValue& v = this->value(value);
  if (v.escapes) return -1;
  int reader = -1;
  for (int r : v.readers) {
    const int n = find(r);
    if (!node(n).alive || n == reader || n == besides) continue;
    if (reader >= 0) return -1;
    reader = n;
  }
  return reader;
}

int Flow::only_writer(const std::vector<int>& values) {
  if (values.size() != 1 || value(values[0]).writer < 0) return -1;
  const int n = find(value(values[0]).writer);
  return node(n).alive ? n : -1;
}

bool Flow::needed_besides(int v, int n) {
  const FlowValue& f = value(v);
  if (f.escapes) return true;
  return std::any_of(f.readers.begin(), f.readers.end(), [&](int r) {
    r = find(r);
    return r != n && node(r).alive && r != find(f.writer);
  });
}

// A walk over what follows `from`, no farther than the place of `to`.
bool Flow::adjacent(int from, int to) {
  ++now_;
  const int end = position(to);
  std::vector<int> stack;
  auto visit = [&](int n, bool direct) {
    n = find(n);
    if (!node(n).alive || n == from || stamp_[static_cast<size_t>(n)] == now_) return true;
    if (n == to) return direct;
    if (position(n) > end) return true;
    stamp_[static_cast<size_t>(n)] = now_;
    stack.push_back(n);
    return true;
  };
  for (int n : node(from).next) visit(n, true);
  while (!stack.empty()) {
    const int n = stack.back();
    stack.pop_back();
    for (int m : node(n).next) {
      if (!visit(m, false)) return false;
    }
  }
  return true;
}

void Flow::absorb(int from, int to) {
  // adjacent() has marked what has to follow `from`: behind `to` with it, when it stands before.
  const int begin = position(from), end = position(to);
  std::vector<int> before, behind;
  for (int p = begin + 1; p < end; ++p) {
    const int n = order_[static_cast<size_t>(p)];
    if (n < 0) continue;
    (stamp_[static_cast<size_t>(n)] == now_ ? behind : before).push_back(n);
  }
  if (behind.empty()) {
    order_[static_cast<size_t>(begin)] = -1;
  } else {
    int p = begin;
    auto place = [&](int n) {
      order_[static_cast<size_t>(p)] = n;
      position_[static_cast<size_t>(n)] = p++;
    };
    for (int n : before) place(n);
    place(to);
    for (int n : behind) place(n);
    while (p <= end) order_[static_cast<size_t>(p++)] = -1;
  }
  alias_[static_cast<size_t>(from)] = to;
  node(from).alive = false;
  std::vector<int>& next = node(to).next;
  next.insert(next.end(), node(from).next.begin(), node(from).next.end());
  for (int& n : next) n = find(n);
  std::sort(next.begin(), next.end());
  next.erase(std::unique(next.begin(), next.end()), next.end());
  next.erase(std::remove(next.begin(), next.end(), to), next.end());
  node(from).map.reset();
}

void Flow::add_reader(int v, int n) {
  FlowValue& f = value(v);
  f.readers.push_back(n);
  if (f.writer >= 0) node(find(f.writer)).next.push_back(n);
}

void Flow::release(int v, int n) {
  FlowValue& f = value(v);
  f.readers.erase(std::remove_if(f.readers.begin(), f.readers.end(), [&](int r) { return find(r) == n; }),
                  f.readers.end());
  if (f.writer < 0) return;
  const int writer = find(f.writer);
  if (writer != n && node(writer).alive && !wanted(writer)) kill(writer);
}

bool Flow::wanted(int n) {
  const FlowNode& node = nodes_[static_cast<size_t>(n)];
  if (node.pinned) return true;
  if (node.map) {
    return std::any_of(node.map->outputs.begin(), node.map->outputs.end(),
                       [&](const auto& o) { return needed_besides(o.value, n); });
  }
  return std::any_of(node.writes.begin(), node.writes.end(),
                     [&](int v) { return v >= 0 && needed_besides(v, n); });
}

std::vector<int> Flow::values_read(int n) {
  std::vector<int> read;
  const FlowNode& node = nodes_[static_cast<size_t>(n)];
  if (node.map) {
    for (const auto& i : node.map->inputs)
      for (int v : i.values()) read.push_back(v);
  } else {
    for (const auto& values : node.reads) read.insert(read.end(), values.begin(), values.end());
  }
  return read;
}

void Flow::kill(int n) {
  node(n).alive = false;
  for (int v : values_read(n)) release(v, n);
}

void Flow::remove_dead() {
  for (size_t p = order_.size(); p-- > 0;) {
    const int n = order_[p];
    if (n < 0 || !node(n).alive) continue;
    if (!wanted(n)) {
      kill(n);
      continue;
    }
    if (!node(n).map) continue;
    MapForm& map = *node(n).map;
    const size_t outputs = map.outputs.size();
    map.outputs.erase(std::remove_if(map.outputs.begin(), map.outputs.end(),
                                     [&](const auto& o) { return !needed_besides(o.value, n); }),
                      map.outputs.end());
    if (map.outputs.size() == outputs) continue;
    const std::vector<int> before = values_read(n);
    prune(map);
    const std::vector<int> after = values_read(n);
    for (int v : before) {
      if (std::find(after.begin(), after.end(), v) == after.end()) release(v, n);
    }
  }
}

void Flow::apply() {
  std::vector<Kernel> kernels;
  std::vector<std::string> locations;
  for (int n : order_) {
    if (n < 0 || !node(n).alive) continue;
    FlowNode& node = nodes_[static_cast<size_t>(n)];
    if (node.map && is_copy(*node.map)) {
      MapKernel map = kernel_of(*node.map);
      View src = map.inputs[0], dst = map.outputs[0].view;
      kernels.emplace_back(MoveKernel{std::move(src), std::move(dst)});
    } else if (node.map) {
      kernels.emplace_back(kernel_of(*node.map));
    } else {
      kernels.push_back(std::move(node.kernel));
    }
    locations.push_back(std::move(node.location));
  }
  list_.kernels = std::move(kernels);
  list_.locations = std::move(locations);
}

}  // namespace trnsim::compiler::fusion
