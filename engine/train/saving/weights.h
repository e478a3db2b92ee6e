// Converts model state to and from named arrays in file layout.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/model_state.h"
#include "engine/train/saving/state_copy.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// Exports all parameters and buffers in model order, as in PyTorch's state_dict. `device` becomes
// their tag.
void export_state(const ModelState& state, Device device, StateCopy& copy);
std::vector<io::NamedArray> export_state(const ModelState& state, Device device);

// Returns the name without the prefixes "module." and "_orig_mod." of wrapped models.
std::string plain_name(const std::string& name);

// Fills `state` from arrays found by (section, plain name); `source` names the file in messages.
// Every parameter must exist. With `exact`, buffers must exist as well, and dtypes must be the
// state's; otherwise buffers are optional, f16, bf16, f32 and f64 are converted, and arrays of
// types that no model has (u8, i32) are skipped if they are not used. Throws io::DataError that
// names the array and both shapes (or dtypes, or the missing and the unused names, or two with one
// plain name). Arrays whose names are `optional` may be missing, unused or of another shape: they
// are omitted. Returns the omitted and skipped ones, each with the reason. `unread` lists the
// file's other arrays, for messages. If all are omitted or skipped, it throws unless
// `may_take_none`. Without `exact`, arrays may also have the names and the shapes of PyTorch's
// modules: "pos" for "pos.weight", [n, m, 1, 1] for [n, m].
std::vector<std::string> import_state(
    const std::vector<io::NamedArray>& arrays, const std::string& source, bool exact,
    ModelState& state, const std::function<bool(const std::string& name)>& optional = {},
    const std::vector<io::UnreadArray>& unread = {}, bool may_take_none = false);

// Exports one flat buffer with the slots of `kind` as arrays named prefix + slot name, in model
// order; import_buffer() is the inverse (exact dtype and shape).
void export_buffer(const FlatBuffer& buffer, const ModelState& state, ModelState::Kind kind,
                   const std::string& prefix, io::Section section, Device device, StateCopy& copy);
// Exports all slots of a buffer in its order, with any names.
void export_slots(const FlatBuffer& buffer, const std::string& prefix, io::Section section,
                  Device device, StateCopy& copy);
void import_buffer(const std::vector<io::NamedArray>& arrays, const std::string& source,
                   const std::string& prefix, io::Section section, FlatBuffer& buffer);

}  // namespace engine
