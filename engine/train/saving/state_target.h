// Loads arrays of a snapshot straight into flat buffers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "engine/graph/model_state.h"
#include "io/checkpoint/array_target.h"

namespace engine {

// Takes those arrays that have the shape and the type of a slot that was added; import_state() and
// import_buffer() find them in place, and refuse what does not fit as ever. The buffers must
// outlive it, in host memory while something is loaded.
class StateTarget final : public io::ArrayTarget {
 public:
  // `check` sees the snapshot's description before anything is put; what it throws ends the load.
  explicit StateTarget(std::function<void(const io::Checkpoint&)> check = {})
      : check_(std::move(check)) {}

  void add(const ModelState& state);  // parameters and buffers
  // Slots named prefix + slot name in this section.
  void add(const FlatBuffer& buffer, const std::string& prefix, io::Section section);

  void begin(const io::Checkpoint& description) override;
  bool wants(const io::NamedArray& array) const override { return find(array) != nullptr; }
  void put(const io::NamedArray& array, const io::ArrayRows& rows) override;

 private:
  struct Place {
    const FlatBuffer* buffer = nullptr;
    std::size_t slot = 0;
  };
  const Place* find(const io::NamedArray& array) const;  // null: not for this target

  std::function<void(const io::Checkpoint&)> check_;
  std::map<std::pair<io::Section, std::string>, Place> places_;
};

}  // namespace engine
