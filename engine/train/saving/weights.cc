// Copies between flat buffers and named arrays, and reports every mismatch by name.
#include "engine/train/saving/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "io/base/text/text_parts.h"

namespace engine {
namespace {

// Returns element i of a floating-point array as double, which represents every source type
// exactly.
double element(const io::NamedArray& array, std::size_t i) {
  const std::byte* p = array.data.data() + i * size_of(array.type);
  const auto read = [p]<class T>(T value) {
    std::memcpy(&value, p, sizeof value);
    return value;
  };
  switch (array.type) {
    case DType::kF32:
      return static_cast<double>(read(float{}));
    case DType::kF64:
      return read(double{});
    case DType::kF16:
      return static_cast<double>(to_float(read(f16{})));
    case DType::kBF16:
      return static_cast<double>(to_float(read(bf16{})));
    default:
      return static_cast<double>(read(std::int64_t{}));
  }
}

// Throws if a finite number would become infinite.
std::vector<std::byte> converted(const io::NamedArray& array, const std::string& source,
                                 DType dtype) {
  const std::size_t count = array.data.size() / size_of(array.type);
  std::vector<std::byte> out(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = element(array, i);
    const auto narrow = static_cast<float>(value);
    if (dtype != DType::kF64 && std::isinf(narrow) && !std::isinf(value))
      throw io::DataError(source + ": '" + array.name + "' has the value " +
                          base::number_text("%g", value) + ", expected one that float32 can hold");
    std::memcpy(out.data() + i * size_of(dtype),
                dtype == DType::kF64 ? static_cast<const void*>(&value) : &narrow, size_of(dtype));
  }
  return out;
}

bool has_shape(const io::NamedArray& array, const Shape& shape) {
  return std::ranges::equal(shape.dims(), array.shape);
}

// Returns true if the numbers of the array are those of a tensor of this shape in their order:
// PyTorch's module may be a convolution of one pixel or of rows, a scalar, or a norm over several
// dimensions, which the model stores as one.
bool fits(const io::NamedArray& array, const Shape& shape, bool exact) {
  if (exact || has_shape(array, shape)) return has_shape(array, shape);
  const auto without_ones = [](std::span<const std::int64_t> extents) {
    std::vector<std::int64_t> rest(extents.begin(), extents.end());
    std::erase(rest, 1);
    return rest;
  };
  std::int64_t count = 1;
  for (const std::int64_t extent : array.shape) count *= extent;
  return without_ones(array.shape) == without_ones(shape.dims()) ||
         (shape.rank() == 1 && shape[0] == count);
}

void from_array(const io::NamedArray& array, const std::string& source, bool exact,
                const FlatBuffer& buffer, std::size_t slot) {
  const FlatBuffer::Slot& s = buffer.slots()[slot];
  if (!fits(array, s.layout.file_shape, exact))
    throw io::DataError(source + ": '" + array.name + "' has shape " +
                        base::shape_text(array.shape) + ", the model wants " +
                        s.layout.file_shape.to_string());
  const bool same = array.type == buffer.dtype();
  if (!same && (exact || !base::is_floating(array.type) || buffer.dtype() == DType::kI64))
    throw io::DataError(source + ": '" + array.name + "' has type " +
                        std::string(to_string(array.type)) + ", the run wants " +
                        std::string(to_string(buffer.dtype())));
  if (array.data.empty()) return;  // a StateTarget has stored it there
  const std::vector<std::byte> other =
      same ? std::vector<std::byte>{} : converted(array, source, buffer.dtype());
  s.layout.to_memory(same ? array.data.data() : other.data(), buffer.view(slot).data,
                     size_of(buffer.dtype()));
}

// An array that the model needs must have a supported type.
void check_type(const std::vector<io::UnreadArray>& unread, const std::string& name,
                const std::string& source, DType wanted) {
  for (const io::UnreadArray& array : unread)
    if (plain_name(array.name) == name)
      throw io::DataError(source + ": '" + array.name + "' has type " + array.type +
                          ", the run wants " + std::string(to_string(wanted)));
}

const FlatBuffer& buffer_of(const ModelState& state, ModelState::Kind kind) {
  switch (kind) {
    case ModelState::Kind::kParameter:
      return state.parameters.values;
    case ModelState::Kind::kRunning:
      return state.running;
    case ModelState::Kind::kCounter:
      return state.counters;
  }
  throw Error("internal: unknown kind of state");
}

}  // namespace

void export_state(const ModelState& state, Device device, StateCopy& copy) {
  for (const ModelState::Entry& e : state.entries)
    copy.add(
        buffer_of(state, e.kind), e.slot, e.name,
        e.kind == ModelState::Kind::kParameter ? io::Section::kParameter : io::Section::kBuffer,
        device);
}

std::vector<io::NamedArray> export_state(const ModelState& state, Device device) {
  StateCopy copy;
  export_state(state, device, copy);
  return copy.take().arrays;
}

std::string plain_name(const std::string& name) {
  std::string_view rest = name;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"module.", "_orig_mod."})
      if (rest.starts_with(prefix)) {
        rest.remove_prefix(prefix.size());
        again = true;
      }
  }
  return std::string(rest);
}

namespace {

// One import: takes the model's entries in order, then checks the remaining arrays.
class StateImport {
 public:
  StateImport(const std::vector<io::NamedArray>& arrays, const std::string& source, bool exact,
              const std::function<bool(const std::string& name)>& optional,
              const std::vector<io::UnreadArray>& unread)
      : arrays_(arrays), source_(source), exact_(exact), optional_(optional), unread_(unread) {
    for (const io::NamedArray& array : arrays) {
      if (array.section != io::Section::kParameter && array.section != io::Section::kBuffer)
        continue;
      const auto [before, is_new] = unused_.emplace(plain_name(array.name), &array);
      if (!is_new)
        throw io::DataError(source + ": '" + before->second->name + "' and '" + array.name +
                            "' are both '" + before->first +
                            "' without the prefixes module. and _orig_mod.; expected one of them");
    }
  }

  void fill(ModelState& state) {
    for (const ModelState::Entry& e : state.entries) {
      const auto found = find(e.name);
      if (found == unused_.end()) {
        miss(state, e);
        continue;
      }
      const io::NamedArray& array = *found->second;
      unused_.erase(found);
      take(array, state, e);
    }
  }

  // Throws if an array remains that is not optional. Returns the omitted ones, each with the
  // reason.
  std::vector<std::string> finish(bool may_take_none) {
    for (const io::NamedArray& array : arrays_) {
      const auto found = unused_.find(plain_name(array.name));
      if (found != unused_.end() && found->second == &array) pass_over(array);
    }
    for (const io::UnreadArray& array : unread_)
      left_out_.push_back(plain_name(array.name) + " (" + array.type + ", not of this model)");
    if (used_ == 0 && !left_out_.empty() && !may_take_none)
      throw io::DataError(source_ + ": none of its " + std::to_string(arrays_.size()) +
                          " arrays is of this model and of the shape that it has");
    return std::move(left_out_);
  }

 private:
  using Arrays = std::unordered_map<std::string, const io::NamedArray*>;

  // PyTorch's state_dict() has the parameters and buffers of a module itself, and those of
  // MultiheadAttention, under other names.
  Arrays::iterator find(const std::string& name) {
    auto found = unused_.find(name);
    const std::size_t dot = name.rfind('.');
    if (found != unused_.end() || exact_ || dot == std::string::npos) return found;
    const std::string module = name.substr(0, dot), own = name.substr(dot + 1);
    if (own == "weight" || own == "value") found = unused_.find(module);
    if (found == unused_.end() && own != "value") found = unused_.find(module + ".in_proj_" + own);
    return found;
  }

  bool may_lack(const std::string& name) const { return optional_ && optional_(name); }

  void miss(const ModelState& state, const ModelState::Entry& e) {
    check_type(unread_, e.name, source_, buffer_of(state, e.kind).dtype());
    if (!exact_ && e.kind != ModelState::Kind::kParameter) return;
    if (!may_lack(e.name))
      throw io::DataError(source_ + ": no '" + e.name +
                          "', which the model needs; the file holds " +
                          std::to_string(arrays_.size()) + " arrays" +
                          (arrays_.empty() ? "" : ", the first is '" + arrays_.front().name + "'"));
    left_out_.push_back(e.name + " (not there, the model has " +
                        state.layout(e).file_shape.to_string() + ")");
  }

  void take(const io::NamedArray& array, const ModelState& state, const ModelState::Entry& e) {
    const Shape& wanted = state.layout(e).file_shape;
    if (!fits(array, wanted, exact_) && may_lack(e.name)) {
      left_out_.push_back(e.name + " (" + base::shape_text(array.shape) + " there, the model has " +
                          wanted.to_string() + ")");
      return;
    }
    from_array(array, source_, exact_, buffer_of(state, e.kind), e.slot);
    ++used_;
  }

  void pass_over(const io::NamedArray& array) {
    const std::string name = plain_name(array.name);
    const bool of_no_model = array.type == DType::kU8 || array.type == DType::kI32;
    if (!may_lack(name) && (exact_ || !of_no_model))
      throw io::DataError(source_ + ": '" + array.name + "' is not of this model (" +
                          std::to_string(unused_.size()) + " arrays are not used, " +
                          std::to_string(used_) + " are)");
    left_out_.push_back(name + " (" + base::shape_text(array.shape) + " there, not of this model)");
  }

  const std::vector<io::NamedArray>& arrays_;
  const std::string& source_;
  const bool exact_;
  const std::function<bool(const std::string& name)>& optional_;
  const std::vector<io::UnreadArray>& unread_;
  Arrays unused_;  // by plain name
  std::size_t used_ = 0;
  std::vector<std::string> left_out_;
};

}  // namespace

std::vector<std::string> import_state(const std::vector<io::NamedArray>& arrays,
                                      const std::string& source, bool exact, ModelState& state,
                                      const std::function<bool(const std::string& name)>& optional,
                                      const std::vector<io::UnreadArray>& unread,
                                      bool may_take_none) {
  StateImport run(arrays, source, exact, optional, unread);
  run.fill(state);
  return run.finish(may_take_none);
}

void export_buffer(const FlatBuffer& buffer, const ModelState& state, ModelState::Kind kind,
                   const std::string& prefix, io::Section section, Device device, StateCopy& copy) {
  for (const ModelState::Entry& e : state.entries)
    if (const auto slot = buffer.find(e.name); e.kind == kind && slot)
      copy.add(buffer, *slot, prefix + e.name, section, device);
}

void export_slots(const FlatBuffer& buffer, const std::string& prefix, io::Section section,
                  Device device, StateCopy& copy) {
  for (std::size_t slot = 0; slot < buffer.slots().size(); ++slot)
    copy.add(buffer, slot, prefix + buffer.slots()[slot].name, section, device);
}

void import_buffer(const std::vector<io::NamedArray>& arrays, const std::string& source,
                   const std::string& prefix, io::Section section, FlatBuffer& buffer) {
  std::unordered_map<std::string, const io::NamedArray*> by_name;
  for (const io::NamedArray& array : arrays)
    if (array.section == section) by_name[array.name] = &array;
  for (std::size_t slot = 0; slot < buffer.slots().size(); ++slot) {
    const std::string name = prefix + buffer.slots()[slot].name;
    const auto found = by_name.find(name);
    if (found == by_name.end())
      throw io::DataError(source + ": no " + io::to_string(section) + " state '" + name + "'");
    from_array(*found->second, source, /*exact=*/true, buffer, slot);
  }
}

}  // namespace engine
