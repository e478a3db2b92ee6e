// Tensors of an archive of torch.save, as views of its storages.
#include "io/interchange/torch/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "io/base/files/open_file.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/torch/pickle_values.h"
#include "io/interchange/zip/zip_archive.h"

namespace io {
namespace {

constexpr std::string_view kPickle = "/data.pkl", kAgain = "save it again with torch.save";
constexpr std::uint64_t kLargestPickle = std::uint64_t{32} << 20;

// Returns the folder of all members of such an archive, with its slash.
std::string_view folder_of(const ZipMember& member) {
  const std::string_view name = member.name;
  return name.substr(0, name.find('/') + 1);
}
bool is_torch_pickle(const ZipMember& member) {
  return member.name.ends_with(kPickle) &&
         member.name.find('/') == member.name.size() - kPickle.size();
}

// Copies `count` elements of `from`, which are `stride` bytes apart, contiguously to `to`.
template <class In, class Out>
void gather(const std::byte* from, std::uint64_t stride, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    In in;
    std::memcpy(&in, from + static_cast<std::uint64_t>(i) * stride, sizeof in);
    const Out out = in;
    std::memcpy(to + static_cast<std::size_t>(i) * sizeof out, &out, sizeof out);
  }
}
using Gather = void (*)(const std::byte*, std::uint64_t, std::int64_t, std::byte*);

Gather gather_of(const pickle::StorageType& type) {
  if (type.stored_as == "i16") return gather<std::int16_t, std::int32_t>;
  if (type.stored_as == "i8") return gather<std::int8_t, std::int32_t>;
  switch (type.bytes) {
    case 8:
      return gather<std::uint64_t, std::uint64_t>;
    case 4:
      return gather<std::uint32_t, std::uint32_t>;
    case 2:
      return gather<std::uint16_t, std::uint16_t>;
    default:
      return gather<std::uint8_t, std::uint8_t>;
  }
}

class TorchSource : public ArraySource {
 public:
  explicit TorchSource(std::unique_ptr<ByteSource> bytes)
      : ArraySource(std::move(bytes)), zip_(*bytes_) {
    const std::size_t at = find_pickle();
    const std::string folder(folder_of(zip_.members()[at]));
    for (std::size_t i = 0; i < zip_.members().size(); ++i) member_of_[zip_.members()[i].name] = i;
    check_kind(folder);
    std::vector<std::byte> text(zip_.members()[at].size);
    zip_.read(at, 0, text);
    const std::vector<pickle::TensorEntry> tensors =
        pickle::state_dict_of(pickle::parse_pickle(text, name()), name());
    std::uint64_t all = 0;
    for (const pickle::TensorEntry& tensor : tensors) {
      add(tensor, folder);
      if (__builtin_add_overflow(all, entries_.back().bytes, &all)) all = ~std::uint64_t{0};
    }
    if (const std::uint64_t most = unpacked_limit(file_bytes()); all > most)
      throw DataError(name() + ": its tensors are views that take " + std::to_string(all) +
                      " bytes, more than the " + std::to_string(most) + " that a file of " +
                      std::to_string(file_bytes()) + " may need; save them after .clone()");
  }

  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    const View& view = views_[index];
    if (view.in_place) return zip_.read(view.member, view.begin + offset, target);
    if (gathered_index_ != index) gather_all(index);
    if (!target.empty()) std::memcpy(target.data(), gathered_.data() + offset, target.size());
  }
  void finish() override { zip_.finish(); }

 private:
  struct View {
    std::size_t member = 0;
    std::uint64_t begin = 0, bytes = 0;  // the part of the member that it covers
    bool in_place = false;               // those bytes are the array
    const pickle::StorageType* type = nullptr;
    std::vector<std::int64_t> strides;
  };

  [[noreturn]] void fail(const std::string& fault) const { throw DataError(name() + ": " + fault); }

  std::size_t find_pickle() const {
    std::size_t found = kNowhere;
    for (std::size_t i = 0; i < zip_.members().size(); ++i) {
      const ZipMember& member = zip_.members()[i];
      if (!is_torch_pickle(member)) continue;
      if (found != kNowhere)
        fail("holds both '" + zip_.members()[found].name + "' and '" + member.name + "'");
      found = i;
    }
    if (found == kNowhere) fail("not an archive of torch.save: no 'NAME/data.pkl' in it");
    if (zip_.members()[found].size > kLargestPickle)
      fail("a pickle of " + std::to_string(zip_.members()[found].size) + " bytes; at most " +
           std::to_string(kLargestPickle));
    return found;
  }

  void check_kind(const std::string& folder) {
    if (member_of_.contains(folder + "constants.pkl"))
      fail("a compiled module of torch.jit.save; save its state_dict() with torch.save");
    for (const ZipMember& member : zip_.members())
      if (member.deflated)
        fail("'" + member.name + "' is compressed, which torch.save never does; " +
             std::string(kAgain));
    const auto order = member_of_.find(folder + "byteorder");
    if (order == member_of_.end()) return;  // not written before PyTorch 2.1
    std::string text(std::min<std::uint64_t>(zip_.members()[order->second].size, 16), '\0');
    zip_.read(order->second, 0, std::as_writable_bytes(std::span(text)));
    if (text == "big")
      fail("its numbers are big-endian; " + std::string(kAgain) +
           " of PyTorch >= 1.6 on a little-endian machine");
    if (text != "little") fail("its byteorder is '" + text + "'; expected little");
  }

  void add(const pickle::TensorEntry& tensor, const std::string& folder) {
    const std::string what = name() + ": '" + tensor.name + "'";
    const std::size_t size = tensor.type->bytes;
    const auto member = member_of_.find(folder + "data/" + tensor.key);
    if (member == member_of_.end())
      throw DataError(what + " lies in storage '" + tensor.key + "', which is not in the archive");
    const std::uint64_t stored = zip_.members()[member->second].size;
    if (stored / size != static_cast<std::uint64_t>(tensor.elements))
      throw DataError(what + ": its storage has " + std::to_string(stored) + " bytes, " +
                      std::to_string(tensor.elements) + " elements of " + std::to_string(size) +
                      " were said to be there");
    View view{.member = member->second, .type = tensor.type, .strides = tensor.strides};
    const std::uint64_t bytes = format::array_bytes(tensor.shape, tensor.type->type, what);
    if (bytes > 0) {
      const std::uint64_t count = reach(tensor, what);  // elements from the first one on
      view.begin = static_cast<std::uint64_t>(tensor.offset) * size;
      view.bytes = count * size;
    }
    view.in_place = bytes == 0 ||
                    (size == size_of(tensor.type->type) && bytes == view.bytes && is_dense(tensor));
    views_.push_back(std::move(view));
    entries_.push_back({tensor.name, Section::kParameter, tensor.type->type, tensor.shape, bytes,
                        tensor.type->stored_as});
  }

  // Returns the number of elements of the storage, from the view's first on, that it covers.
  // REQUIRES: not empty.
  static std::uint64_t reach(const pickle::TensorEntry& tensor, const std::string& what) {
    std::uint64_t last = 0;
    bool beyond = false;
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      std::uint64_t step = 0;
      beyond |= __builtin_mul_overflow(static_cast<std::uint64_t>(tensor.shape[d] - 1),
                                       static_cast<std::uint64_t>(tensor.strides[d]), &step) ||
                __builtin_add_overflow(last, step, &last);
    }
    const auto elements = static_cast<std::uint64_t>(tensor.elements),
               offset = static_cast<std::uint64_t>(tensor.offset);
    if (beyond || offset >= elements || last >= elements - offset)
      throw DataError(what + " reaches beyond the " + std::to_string(elements) +
                      " elements of its storage");
    return last + 1;
  }
  // Returns true for row-major order without gaps; the strides of dimensions with one element do
  // not matter. REQUIRES: not empty.
  static bool is_dense(const pickle::TensorEntry& tensor) {
    std::int64_t expected = 1;
    for (std::size_t d = tensor.shape.size(); d-- > 0;) {
      if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
      expected *= tensor.shape[d];
    }
    return true;
  }

  void gather_all(std::size_t index) {
    gathered_index_ = kNowhere;
    gathered_.assign(entries_[index].bytes, std::byte{0});
    const View& view = views_[index];
    std::vector<std::byte> reached(view.bytes);
    zip_.read(view.member, view.begin, reached);
    // Reads row by row; `at` is the start of a row.
    const std::vector<std::int64_t>& shape = entries_[index].shape;
    const std::int64_t row = shape.empty() ? 1 : shape.back();
    const std::uint64_t apart = shape.empty() ? 0 : stride_bytes(view, shape.size() - 1),
                        row_bytes = static_cast<std::uint64_t>(row) * size_of(entries_[index].type);
    const Gather one_row = gather_of(*view.type);
    std::vector<std::int64_t> place(shape.size(), 0);
    std::uint64_t from = 0;
    for (std::uint64_t to = 0; to < gathered_.size(); to += row_bytes) {
      one_row(reached.data() + from, apart, row, gathered_.data() + to);
      for (std::size_t d = shape.empty() ? 0 : shape.size() - 1; d-- > 0;) {
        from += stride_bytes(view, d);
        if (++place[d] < shape[d]) break;
        from -= stride_bytes(view, d) * static_cast<std::uint64_t>(place[d]);
        place[d] = 0;
      }
    }
    gathered_index_ = index;
  }
  static std::uint64_t stride_bytes(const View& view, std::size_t d) {
    return static_cast<std::uint64_t>(view.strides[d]) * view.type->bytes;
  }

  static constexpr std::size_t kNowhere = ~std::size_t{0};
  ZipReader zip_;
  std::unordered_map<std::string, std::size_t> member_of_;
  std::vector<View> views_;
  std::size_t gathered_index_ = kNowhere;
  std::vector<std::byte> gathered_;  // the last gathered array
};

}  // namespace

bool is_torch_archive(const ByteSource& bytes) {
  const std::vector<ZipMember> members = read_zip_directory(bytes);
  return std::any_of(members.begin(), members.end(), is_torch_pickle);
}

std::unique_ptr<ArraySource> open_torch_archive(std::unique_ptr<ByteSource> bytes) {
  return std::make_unique<TorchSource>(std::move(bytes));
}

}  // namespace io
