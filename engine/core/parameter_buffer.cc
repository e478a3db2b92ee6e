// Computes the offsets of a flat buffer.
#include "engine/core/parameter_buffer.h"

#include "engine/core/checked.h"

namespace engine {

FlatBuffer::FlatBuffer(DType dtype, const std::vector<NamedLayout>& tensors, Device device,
                       const MemorySource* source)
    : dtype_(dtype) {
  const auto unit = static_cast<std::int64_t>(kAlignment / size_of(dtype));
  for (const NamedLayout& tensor : tensors) {
    require(tensor.dtype == dtype, "a flat buffer has one dtype");
    const std::int64_t count = tensor.layout.file_shape.count();
    slots_.push_back({tensor.name, tensor.layout, size_, count});
    size_ = checked_add(size_, checked_add(count, unit - 1) / unit * unit);
  }
  arena_ = source == nullptr ? Arena(bytes(), device) : Arena(bytes(), device, *source);
}

FlatBuffer FlatBuffer::like(const FlatBuffer& other, Device device) {
  FlatBuffer buffer;
  buffer.dtype_ = other.dtype_;
  buffer.slots_ = other.slots_;
  buffer.size_ = other.size_;
  buffer.arena_ = Arena(other.bytes(), device);
  return buffer;
}

std::optional<std::size_t> FlatBuffer::find(std::string_view name) const {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].name == name) return slot;
  return std::nullopt;
}

TensorView FlatBuffer::flat() const {
  return {arena_.data(), dtype_, Shape{size_}, arena_.device()};
}

TensorView FlatBuffer::part(std::int64_t first, std::int64_t count) const {
  require(first >= 0 && count >= 0 && first + count <= size_, "a part beyond a flat buffer's end");
  return {arena_.data() + static_cast<std::size_t>(first) * size_of(dtype_), dtype_, Shape{count},
          arena_.device()};
}

std::int64_t ParameterBuffer::trained_elements(const FlatBuffer& buffer) const {
  const std::size_t trained = gradients.slots().size();
  if (trained == values.slots().size()) return buffer.size();
  const auto frozen = buffer.find(values.slots()[trained].name);
  return frozen ? buffer.slots()[*frozen].offset : buffer.size();
}

TensorView FlatBuffer::view(std::size_t slot) const {
  const Slot& s = slots_.at(slot);
  return {arena_.data() + static_cast<std::size_t>(s.offset) * size_of(dtype_), dtype_,
          s.layout.memory_shape(), arena_.device()};
}

}  // namespace engine
