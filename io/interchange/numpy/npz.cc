// Arrays of an archive, read in place if they are stored in C order.
#include "io/interchange/numpy/npz.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "io/base/text/utf8.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/numpy/npy.h"
#include "io/interchange/zip/zip_archive.h"

namespace io {
namespace {

constexpr std::string_view kEnding = ".npy";

class NpzSource : public ArraySource {
 public:
  explicit NpzSource(std::unique_ptr<ByteSource> bytes)
      : ArraySource(std::move(bytes)), zip_(*bytes_) {
    for (const ZipMember& member : zip_.members())  // checked before any header: the clearer
                                                    // message
      if (!member.name.ends_with(kEnding) || member.name.size() == kEnding.size())
        throw DataError(name() + ": '" + member.name +
                        "' is not a .npy array; neither an .npz file nor PyTorch's");
    for (std::size_t i = 0; i < zip_.members().size(); ++i) add(i);
  }

  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    if (!headers_[index].fortran_order)
      return zip_.read(members_[index], headers_[index].header_bytes + offset, target);
    if (converted_index_ != index) convert_to_c_order(index);
    if (!target.empty()) std::memcpy(target.data(), converted_.data() + offset, target.size());
  }
  void finish() override { zip_.finish(); }

 private:
  void add(std::size_t index) {
    const ZipMember& member = zip_.members()[index];
    const std::string what = name() + ": '" + member.name + "'";
    NpyHeader h =
        read_npy_header([&](std::uint64_t offset,
                            std::span<std::byte> target) { zip_.read(index, offset, target); },
                        member.size, what);
    std::string array = member.name.substr(0, member.name.size() - kEnding.size());
    if (!h.unread_type.empty()) {
      unread_.push_back({std::move(array), std::move(h.unread_type)});
      return;
    }
    entries_.push_back(
        {std::move(array), Section::kParameter, h.type, h.shape, member.size - h.header_bytes});
    headers_.push_back(std::move(h));
    members_.push_back(index);
  }

  void convert_to_c_order(std::size_t index) {
    converted_index_ = kNone;
    converted_.clear();
    check_unpacked(entries_[index].bytes);
    std::vector<std::byte> fortran(entries_[index].bytes);
    zip_.read(members_[index], headers_[index].header_bytes, fortran);
    converted_ = to_c_order(fortran, entries_[index].shape, size_of(entries_[index].type));
    converted_index_ = index;
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  ZipReader zip_;
  std::vector<NpyHeader> headers_;    // for each entry
  std::vector<std::size_t> members_;  // index in the archive, for each entry
  std::size_t converted_index_ = kNone;
  std::vector<std::byte> converted_;  // the last converted array
};

// Throws for names that the reader would reject.
void check_name(const std::string& name, std::set<std::string>& names, const std::string& what) {
  const std::string path = "/" + name + std::string(kEnding) + "/";
  if (name.empty() || name.size() > format::kLongestName - kEnding.size() || !base::is_utf8(name) ||
      name.find('\0') != std::string::npos || name.find('\\') != std::string::npos ||
      name.front() == '/' || path.find("/../") != std::string::npos ||
      path.find("/./") != std::string::npos)
    throw DataError(what + " cannot be saved under this name in an .npz");
  if (!names.insert(name).second) throw DataError(what + " occurs twice");
}

}  // namespace

std::unique_ptr<ArraySource> open_npz(std::unique_ptr<ByteSource> bytes) {
  return std::make_unique<NpzSource>(std::move(bytes));
}

void save_npz(const std::vector<NamedArray>& arrays, const std::string& path) {
  std::vector<std::string> headers;
  std::vector<std::pair<std::string, std::uint64_t>> members;
  std::set<std::string> names;
  for (const NamedArray& array : arrays) {
    const std::string what = path + ": '" + array.name + "'";
    check_name(array.name, names, what);
    if (format::array_bytes(array.shape, array.type, what) != array.data.size())
      throw DataError(what + " cannot be saved: " + std::to_string(array.data.size()) +
                      " bytes do not fit its shape and type");
    headers.push_back(write_npy_header(array.type, array.shape, what));
    members.emplace_back(array.name + std::string(kEnding),
                         headers.back().size() + array.data.size());
  }
  AtomicFile file(path, ZipWriter::total_bytes(members));
  ZipWriter writer([&](std::span<const std::byte> bytes) { file.write(bytes); });
  for (std::size_t i = 0; i < arrays.size(); ++i)
    writer.add(members[i].first, {std::as_bytes(std::span(headers[i])), arrays[i].data});
  writer.finish();
  file.commit();
}

}  // namespace io
