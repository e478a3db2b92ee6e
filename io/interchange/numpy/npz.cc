// Arrays of an archive, read in place where they are stored in C order.
#include "io/interchange/numpy/npz.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "io/base/text/text_format.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/numpy/npy_header.h"
#include "io/interchange/zip/zip_archive.h"

namespace io {
namespace {

constexpr std::string_view kEnding = ".npy";

// Converts elements from Fortran order (first index fastest) to C order (last index fastest).
std::vector<std::byte> to_c_order(const std::vector<std::byte>& fortran,
                                  const std::vector<std::int64_t>& shape, std::size_t element) {
  std::vector<std::byte> out(fortran.size());
  std::vector<std::uint64_t> stride(shape.size(), 1), index(shape.size(), 0);
  for (std::size_t d = 1; d < shape.size(); ++d)
    stride[d] = stride[d - 1] * static_cast<std::uint64_t>(shape[d - 1]);
  std::uint64_t from = 0;
  for (std::size_t at = 0; at < out.size(); at += element) {
    std::memcpy(out.data() + at, fortran.data() + from * element, element);
    for (std::size_t d = shape.size(); d-- > 0;) {
      from += stride[d];
      if (++index[d] < static_cast<std::uint64_t>(shape[d])) break;
      from -= stride[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

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
    if (turned_index_ != index) turn(index);
    if (!target.empty()) std::memcpy(target.data(), turned_.data() + offset, target.size());
  }
  void finish() override { zip_.finish(); }

 private:
  void add(std::size_t index) {
    const ZipMember& member = zip_.members()[index];
    const std::string what = name() + ": '" + member.name + "'";
    std::vector<std::byte> header(std::min<std::uint64_t>(kNpyPrefix, member.size));
    zip_.read(index, 0, header);
    const std::uint64_t length = npy_header_length(header, what);
    if (length > member.size) throw DataError(what + ": truncated .npy header");
    const std::size_t first = std::min<std::uint64_t>(header.size(), length);
    header.resize(length);
    zip_.read(index, first, std::span(header).subspan(first));
    NpyHeader h = parse_npy_header(header, what);
    std::string array = member.name.substr(0, member.name.size() - kEnding.size());
    if (!h.unread_type.empty()) {
      unread_.push_back({std::move(array), std::move(h.unread_type)});
      return;
    }
    const std::uint64_t wanted = format::array_bytes(h.shape, h.type, what),
                        found = member.size - length;
    if (wanted != found)
      throw DataError(what + " has " + std::to_string(found) + " bytes, its shape and dtype need " +
                      std::to_string(wanted));
    const auto longer =
        std::count_if(h.shape.begin(), h.shape.end(), [](std::int64_t d) { return d > 1; });
    if (longer < 2) h.fortran_order = false;  // the same in both orders
    entries_.push_back({std::move(array), Section::kParameter, h.type, h.shape, found});
    headers_.push_back(std::move(h));
    members_.push_back(index);
  }

  void turn(std::size_t index) {
    turned_index_ = kNone;
    turned_.clear();
    check_unpacked(entries_[index].bytes);
    std::vector<std::byte> fortran(entries_[index].bytes);
    zip_.read(members_[index], headers_[index].header_bytes, fortran);
    turned_ = to_c_order(fortran, entries_[index].shape, size_of(entries_[index].type));
    turned_index_ = index;
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  ZipReader zip_;
  std::vector<NpyHeader> headers_;    // for each entry
  std::vector<std::size_t> members_;  // index in the archive, for each entry
  std::size_t turned_index_ = kNone;
  std::vector<std::byte> turned_;  // the last converted array
};

// Throws for names that the reader would reject.
void check_name(const std::string& name, std::set<std::string>& names, const std::string& what) {
  const std::string path = "/" + name + std::string(kEnding) + "/";
  if (name.empty() || name.size() > format::kLongestName - kEnding.size() || !is_utf8(name) ||
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
