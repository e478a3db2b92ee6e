// Converts arrays from file layout to memory layout, one at a time.
#include "engine/train/saving/state_target.h"

#include <algorithm>

namespace engine {

void StateTarget::add(const ModelState& state) {
  for (const ModelState::Entry& e : state.entries) {
    const bool parameter = e.kind == ModelState::Kind::kParameter;
    const FlatBuffer& buffer = parameter                              ? state.parameters.values
                               : e.kind == ModelState::Kind::kRunning ? state.running
                                                                      : state.counters;
    places_[{parameter ? io::Section::kParameter : io::Section::kBuffer, e.name}] = {&buffer,
                                                                                     e.slot};
  }
}

void StateTarget::add(const FlatBuffer& buffer, const std::string& prefix, io::Section section) {
  for (std::size_t slot = 0; slot < buffer.slots().size(); ++slot)
    places_[{section, prefix + buffer.slots()[slot].name}] = {&buffer, slot};
}

void StateTarget::begin(const io::Checkpoint& description) {
  if (check_) check_(description);
}

void StateTarget::put(const io::NamedArray& array, const io::ArrayRows& rows) {
  const Place* place = find(array);
  require(place != nullptr, "an array without a place in the state");
  const FlatBuffer& buffer = *place->buffer;
  buffer.slots()[place->slot].layout.rows_to_memory(rows.data.data(), rows.first, rows.count,
                                                    buffer.view(place->slot).data,
                                                    size_of(buffer.dtype()));
}

const StateTarget::Place* StateTarget::find(const io::NamedArray& array) const {
  const auto found = places_.find({array.section, array.name});
  if (found == places_.end()) return nullptr;
  const FlatBuffer& buffer = *found->second.buffer;
  const Shape& shape = buffer.slots()[found->second.slot].layout.file_shape;
  return buffer.dtype() == array.type && std::ranges::equal(shape.dims(), array.shape)
             ? &found->second
             : nullptr;
}

}  // namespace engine
