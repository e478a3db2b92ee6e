// Model state to and from named arrays in file layout.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/model_state.h"
#include "engine/train/saving/state_copy.h"
#include "io/base/digests/digest.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// All parameters and buffers in model order, as PyTorch's state_dict has them. `device` becomes
// their tag.
void export_state(const ModelState& state, Device device, StateCopy& copy);
std::vector<io::NamedArray> export_state(const ModelState& state, Device device);

// Names that files of wrapped models carry: without "module." and "_orig_mod." in front.
std::string plain_name(const std::string& name);

// Fills `state` from arrays found by (section, plain name); `source` stands for the file in
// messages. Every parameter must be there. With `exact`, buffers too, and dtypes must be the
// state's; otherwise buffers are optional, f16, bf16, f32 and f64 convert, and arrays of types that
// no model has (u8, i32) are passed over where they are not used. Throws io::DataError that names
// the array and both shapes (or dtypes, or the missing and the unused names). Those whose names are
// `optional` may be missing, unused or of another shape: they are left out. Returns what was left
// out or passed over, each with the reason. `unread`: what else the file holds, for messages.
std::vector<std::string> import_state(
    const std::vector<io::NamedArray>& arrays, const std::string& source, bool exact,
    ModelState& state, const std::function<bool(const std::string& name)>& optional = {},
    const std::vector<io::UnreadArray>& unread = {});

// One flat buffer with the slots of `kind` as arrays named prefix + slot name, in model order; and
// back (exact dtype, shape).
void export_buffer(const FlatBuffer& buffer, const ModelState& state, ModelState::Kind kind,
                   const std::string& prefix, io::Section section, Device device, StateCopy& copy);
// All slots of a buffer, in its order, whatever they are named after.
void export_slots(const FlatBuffer& buffer, const std::string& prefix, io::Section section,
                  Device device, StateCopy& copy);
void import_buffer(const std::vector<io::NamedArray>& arrays, const std::string& source,
                   const std::string& prefix, io::Section section, FlatBuffer& buffer);

// Of memory; of a whole buffer.
using StateDigest = base::Digest;
StateDigest digest(const void* data, std::size_t bytes);
StateDigest digest(const FlatBuffer& buffer);

}  // namespace engine
