// Loads arrays of a checkpoint directly into flat buffers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "engine/graph/model_state.h"
#include "io/checkpoint/array_target.h"

namespace engine {

// Accepts the arrays that have the shape and the type of an added slot; import_state() and
// import_buffer() find them in place, and reject mismatches as usual. The buffers must outlive it,
// and must be in host memory while something is loaded.
class StateTarget final : public io::ArrayTarget {
 public:
  // `check` receives the checkpoint's description before any array is stored; its exception ends
  // the load.
  explicit StateTarget(std::function<void(const io::Checkpoint&)> check = {})
      : check_(std::move(check)) {}

  void add(const ModelState& state);  // parameters and buffers
  // Adds slots with the names prefix + slot name in this section.
  void add(const FlatBuffer& buffer, const std::string& prefix, io::Section section);

  void begin(const io::Checkpoint& description) override;
  bool wants(const io::NamedArray& array) const override { return find(array) != nullptr; }
  void put(const io::NamedArray& array, const io::ArrayRows& rows) override;

 private:
  struct Place {
    const FlatBuffer* buffer = nullptr;
    std::size_t slot = 0;
  };
  const Place* find(const io::NamedArray& array) const;  // null: no added slot has this name

  std::function<void(const io::Checkpoint&)> check_;
  std::map<std::pair<io::Section, std::string>, Place> places_;
};

}  // namespace engine
