// Writes a state dict in the format of torch.save: a pickle of protocol 2, and a member for each
// storage.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "io/base/text/utf8.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/torch/pickle_values.h"
#include "io/interchange/torch/torch_archive.h"
#include "io/interchange/zip/zip_archive.h"

namespace io {
namespace {

constexpr std::uint64_t kTorchAlignment = 64;  // alignment of every storage, the same as PyTorch's
constexpr std::string_view kFolder = "archive/";

std::string_view storage_name(DType type) {
  for (const pickle::StorageType& known : pickle::kStorageTypes)
    if (known.type == type && known.stored_as.empty()) return known.name;
  return "";  // not reached: every DType has one
}

// Writes the pickle of an OrderedDict of tensors; tensor i is the whole of storage i.
class PickleWriter {
 public:
  std::string write(const std::vector<NamedArray>& arrays) {
    text_ = "\x80\x02";
    empty_dict();
    text_ += '(';
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      unicode(arrays[i].name);
      tensor(arrays[i], i);
    }
    return text_ + "u.";
  }

 private:
  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  void unicode(std::string_view text) {
    text_ += 'X';
    little_endian(text.size(), 4);
    text_ += text;
  }
  void integer(std::uint64_t value) {
    if (value < 256) {
      text_ += 'K';
      little_endian(value, 1);
    } else if (value < 0x80000000) {
      text_ += 'J';
      little_endian(value, 4);
    } else {  // at most 63 bits
      text_ += "\x8A\x08";
      little_endian(value, 8);
    }
  }
  // Writes a name once; later uses refer to the memo.
  void global(const std::string& module, std::string_view name) {
    const std::string full = module + '\n' + std::string(name) + '\n';
    const auto [found, is_new] = memo_.try_emplace(full, memo_.size());
    text_ += is_new ? 'c' + full + 'q' : std::string(1, 'h');
    little_endian(found->second, 1);
  }
  void empty_dict() {
    global("collections", "OrderedDict");
    text_ += ")R";
  }
  void tuple(const std::vector<std::int64_t>& numbers) {
    if (numbers.empty()) {
      text_ += ')';
      return;
    }
    text_ += '(';
    for (const std::int64_t number : numbers) integer(static_cast<std::uint64_t>(number));
    text_ += 't';
  }
  // Writes _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks).
  void tensor(const NamedArray& array, std::size_t storage) {
    std::vector<std::int64_t> strides(array.shape.size(), 1);
    for (std::size_t d = strides.size(); d-- > 1;)
      strides[d - 1] = strides[d] * std::max<std::int64_t>(array.shape[d], 1);
    global("torch._utils", "_rebuild_tensor_v2");
    text_ += "((";
    unicode("storage");
    global("torch", storage_name(array.type));
    unicode(std::to_string(storage));
    unicode("cpu");
    integer(array.data.size() / size_of(array.type));
    text_ += "tQ";
    integer(0);
    tuple(array.shape);
    tuple(strides);
    text_ += '\x89';
    empty_dict();
    text_ += "tR";
  }

  std::string text_;
  std::unordered_map<std::string, std::size_t> memo_;
};

void check_arrays(const std::vector<NamedArray>& arrays, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const NamedArray& array : arrays) {
    const std::string what = path + ": '" + array.name + "'";
    if (array.name.empty() || array.name.size() > format::kLongestName ||
        !base::is_utf8(array.name))
      throw DataError(what + " cannot be saved: its name is not 1 to 4096 bytes of UTF-8");
    if (!names.insert(array.name).second) throw DataError(what + " occurs twice");
    if (format::array_bytes(array.shape, array.type, what) != array.data.size())
      throw DataError(what + " cannot be saved: " + std::to_string(array.data.size()) +
                      " bytes do not fit its shape and type");
  }
}

}  // namespace

void save_torch_archive(const std::vector<NamedArray>& arrays, const std::string& path) {
  check_arrays(arrays, path);
  const std::string text = PickleWriter().write(arrays), order = "little", version = "3\n";
  static_cast<void>(pickle::parse_pickle(std::as_bytes(std::span(text)),
                                         path));  // never writes a file that it would not read
  using Parts = std::vector<std::span<const std::byte>>;
  std::vector<std::pair<std::string, std::uint64_t>> sizes;
  std::vector<Parts> contents;
  const auto member = [&](const std::string& name, std::span<const std::byte> content) {
    sizes.emplace_back(std::string(kFolder) + name, content.size());
    contents.push_back({content});
  };
  member("data.pkl", std::as_bytes(std::span(text)));  // PyTorch finds the folder from the first
                                                       // member
  member("byteorder", std::as_bytes(std::span(order)));
  for (std::size_t i = 0; i < arrays.size(); ++i)
    member("data/" + std::to_string(i), arrays[i].data);
  member("version", std::as_bytes(std::span(version)));
  AtomicFile file(path, ZipWriter::total_bytes(sizes, kTorchAlignment));
  ZipWriter writer([&](std::span<const std::byte> bytes) { file.write(bytes); }, kTorchAlignment);
  for (std::size_t i = 0; i < sizes.size(); ++i) writer.add(sizes[i].first, contents[i]);
  writer.finish();
  file.commit();
}

}  // namespace io
