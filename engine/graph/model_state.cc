// ModelState: assigns slots in completion order and names in model order, and draws initial values
// in file order.
#include "engine/graph/model_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <numbers>

#include "engine/core/cuda_host.h"
#include "engine/core/random.h"

namespace engine {
namespace {

std::string full_name(const Graph::Node& node, const std::string& name) {
  return node.name + "." + name;
}

// Returns element i of the parameter's own stream, always rounded to float, so that f32 and f64
// runs start with the same values.
float initial_value(const Initializer& initializer, std::uint64_t key, std::uint64_t i) {
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      return static_cast<float>(initializer.value);
    case Initializer::Kind::kUniform: {
      const double u = uniform_float(philox(key, 0, i / 4)[i % 4]);
      return static_cast<float>((2 * u - 1) * initializer.value);
    }
    case Initializer::Kind::kNormal: {  // Box and Muller, 1958; two words per value
      const auto words = philox(key, 0, i / 2);
      const double u = 1 - static_cast<double>(uniform_float(words[i % 2 * 2]));  // in (0, 1]
      const double v = uniform_float(words[i % 2 * 2 + 1]);
      return static_cast<float>(initializer.value * std::sqrt(-2 * std::log(u)) *
                                std::cos(2 * std::numbers::pi * v));
    }
  }
  throw Error("internal: unknown initializer");
}

template <class T>
void fill(const TensorView& view, const TensorLayout& layout, const Initializer& initializer,
          std::uint64_t key) {
  std::vector<T> file(static_cast<std::size_t>(view.count()));
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = initial_value(initializer, key, i);
  layout.to_memory(file.data(), view.data, sizeof(T));
}

void fill(const TensorView& view, const TensorLayout& layout, const Initializer& initializer,
          std::uint64_t key) {
  if (view.dtype == DType::kF64)
    fill<double>(view, layout, initializer, key);
  else if (view.dtype == DType::kI64)
    fill<std::int64_t>(view, layout, initializer, key);
  else
    fill<float>(view, layout, initializer, key);
}

const FlatBuffer& buffer_of(const ModelState& state, ModelState::Kind kind) {
  if (kind == ModelState::Kind::kParameter) return state.parameters.values;
  return kind == ModelState::Kind::kRunning ? state.running : state.counters;
}

}  // namespace

std::vector<OrderedParameter> completion_order(const Graph& graph, DType dtype) {
  std::vector<OrderedParameter> order, frozen;
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Graph::Node& node = graph.nodes()[static_cast<std::size_t>(id)];
    if (!node.layer) continue;
    int index = 0;
    for (const ParameterSpec& spec : graph.own_parameters(id)) {
      const bool is_frozen = graph.is_frozen(id, static_cast<std::size_t>(index));
      (is_frozen ? frozen : order)
          .push_back({id,
                      index++,
                      {full_name(node, spec.name), spec.layout, dtype},
                      spec.initializer,
                      is_frozen});
    }
  }
  std::move(frozen.begin(), frozen.end(), std::back_inserter(order));
  return order;
}

ModelState ModelState::allocate(const Graph& graph, DType compute, Device device, bool gradients,
                                const MemorySource* source) {
  const DType dtype = state_dtype(compute);
  require(dtype == DType::kF32 || dtype == DType::kF64, "a model's state is f32 or f64");
  ModelState state;
  std::vector<NamedLayout> parameters, running, counters;
  std::map<std::string, std::size_t> slots;
  std::size_t frozen = 0;
  for (OrderedParameter& parameter : completion_order(graph, dtype)) {
    if (parameter.frozen) ++frozen;
    slots[parameter.layout.name] = parameters.size();
    parameters.push_back(std::move(parameter.layout));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Graph::Node& node = graph.nodes()[static_cast<std::size_t>(id)];
    if (!node.layer) continue;
    for (const ParameterSpec& spec : graph.own_parameters(id)) {
      const std::string name = full_name(node, spec.name);
      state.entries.push_back({name, Kind::kParameter, slots.at(name)});
    }
    for (const BufferSpec& spec : own_buffers(graph, id)) {
      std::vector<NamedLayout>& list = spec.counter ? counters : running;
      state.entries.push_back({full_name(node, spec.name),
                               spec.counter ? Kind::kCounter : Kind::kRunning, list.size(),
                               spec.is_constant});
      list.push_back({full_name(node, spec.name), TensorLayout::plain(spec.shape),
                      spec.counter ? DType::kI64 : dtype});
    }
  }
  if (gradients) {
    const cuda::MemoryPurpose purpose("gradients");
    state.parameters.gradients = FlatBuffer(
        dtype, {parameters.begin(), parameters.end() - static_cast<std::ptrdiff_t>(frozen)}, device,
        source);
  }
  const cuda::MemoryPurpose purpose("parameters");
  state.parameters.values = FlatBuffer(dtype, parameters, device);
  state.running = FlatBuffer(dtype, running, device);
  state.counters = FlatBuffer(DType::kI64, counters, device);
  if (is_half(compute)) {
    state.half_dtype = compute;
    state.half =
        Arena(static_cast<std::size_t>(state.parameters.values.size()) * size_of(compute), device);
  }
  return state;
}

void ModelState::initialize(const Graph& graph, std::uint64_t seed, const Wants& wants) {
  std::size_t next = 0;  // entries are in the order of this traversal
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Graph::Node& node = graph.nodes()[static_cast<std::size_t>(id)];
    if (!node.layer) continue;
    for (const ParameterSpec& spec : graph.own_parameters(id)) {
      const Entry& entry = entries.at(next++);
      require(entry.name == full_name(node, spec.name), "the state belongs to another graph");
      if (!wants || wants(entry.name))
        fill(view(entry), spec.layout, spec.initializer, stream_key(seed, entry.name));
    }
    for (const BufferSpec& spec : own_buffers(graph, id)) {
      const Entry& entry = entries.at(next++);
      require(entry.name == full_name(node, spec.name), "the state belongs to another graph");
      fill(view(entry), layout(entry), {Initializer::Kind::kConstant, spec.initial}, 0);
    }
  }
  if (parameters.gradients.bytes() > 0)
    std::memset(parameters.gradients.data(), 0, parameters.gradients.bytes());
}

TensorView ModelState::view(const Entry& entry) const {
  return buffer_of(*this, entry.kind).view(entry.slot);
}

const TensorLayout& ModelState::layout(const Entry& entry) const {
  return buffer_of(*this, entry.kind).slots()[entry.slot].layout;
}

std::int64_t ModelState::parameter_count() const {
  std::int64_t count = 0;
  for (const FlatBuffer::Slot& slot : parameters.values.slots()) count += slot.count;
  return count;
}

TensorView ModelState::half_view(const Entry& entry) const {
  require(entry.kind == Kind::kParameter && half_dtype != DType::kF32,
          "halves are copies of parameters");
  const FlatBuffer::Slot& slot = parameters.values.slots()[entry.slot];
  return {half.data() + static_cast<std::size_t>(slot.offset) * size_of(half_dtype), half_dtype,
          slot.layout.memory_shape(), half.device()};
}

TensorView ModelState::half_flat() const {
  if (half_dtype == DType::kF32) return {};
  return {half.data(), half_dtype, Shape{parameters.values.size()}, half.device()};
}

}  // namespace engine
