// Copies slots of flat buffers to arrays of a checkpoint.
#include "engine/train/saving/state_copy.h"

#include <utility>

namespace engine {
namespace {

bool lies_as_in_files(const TensorLayout& layout) {
  for (int d = 0; d < layout.file_shape.rank(); ++d)
    if (layout.permutation[static_cast<std::size_t>(d)] != d) return false;
  return true;
}

}  // namespace

void StateCopy::begin(io::Checkpoint description) {
  spare_.resize(checkpoint_.arrays.size());
  for (std::size_t i = 0; i < spare_.size(); ++i) spare_[i] = std::move(checkpoint_.arrays[i].data);
  std::vector<io::NamedArray> arrays = std::move(checkpoint_.arrays);
  arrays.clear();
  layouts_.clear();
  checkpoint_ = std::move(description);
  checkpoint_.arrays = std::move(arrays);
}

void StateCopy::add(const FlatBuffer& buffer, std::size_t slot, std::string name,
                    io::Section section, Device device) {
  const FlatBuffer::Slot& s = buffer.slots()[slot];
  const TensorView view = buffer.view(slot);
  const auto dims = s.layout.file_shape.dims();
  const std::size_t index = checkpoint_.arrays.size();
  std::vector<std::byte> data =
      index < spare_.size() ? std::move(spare_[index]) : std::vector<std::byte>{};
  const auto* bytes = static_cast<const std::byte*>(view.data);
  data.assign(bytes, bytes + view.bytes());  // does not zero-fill it first
  checkpoint_.arrays.push_back({.name = std::move(name),
                                .section = section,
                                .type = buffer.dtype(),
                                .shape = {dims.begin(), dims.end()},
                                .device = to_string(device),
                                .data = std::move(data)});
  layouts_.push_back(s.layout);
}

void StateCopy::complete(std::size_t index) {
  if (index >= layouts_.size() || lies_as_in_files(layouts_[index])) return;
  io::NamedArray& array = checkpoint_.arrays[index];
  scratch_.assign(array.data.begin(), array.data.end());
  layouts_[index].to_file(scratch_.data(), array.data.data(), size_of(array.type));
  layouts_[index] = {};
}

io::Checkpoint StateCopy::take() {
  for (std::size_t i = 0; i < checkpoint_.arrays.size(); ++i) complete(i);
  layouts_.clear();
  return std::exchange(checkpoint_, {});
}

}  // namespace engine
