// Reads the header of an array, and the array in either order.
#include "io/interchange/numpy/npy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint_format.h"

namespace io {
namespace {

class NpySource : public ArraySource {
 public:
  NpySource(std::unique_ptr<ByteSource> bytes, const std::string& array)
      : ArraySource(std::move(bytes)) {
    header_ = read_npy_header(
        [this](std::uint64_t offset, std::span<std::byte> target) { bytes_->read(offset, target); },
        bytes_->size(), name());
    if (!header_.unread_type.empty())
      unread_.push_back({array, header_.unread_type});
    else
      entries_.push_back({array, Section::kParameter, header_.type, header_.shape,
                          bytes_->size() - header_.header_bytes});
  }

  void read(std::size_t, std::uint64_t offset, std::span<std::byte> target) override {
    if (!header_.fortran_order) return bytes_->read(header_.header_bytes + offset, target);
    if (turned_.empty())
      turned_ = to_c_order(bytes_->bytes(header_.header_bytes, entries_[0].bytes), header_.shape,
                           size_of(header_.type));
    if (!target.empty()) std::memcpy(target.data(), turned_.data() + offset, target.size());
  }
  void finish() override {}

 private:
  NpyHeader header_;
  std::vector<std::byte> turned_;
};

}  // namespace

NpyHeader read_npy_header(const ReadNpy& read, std::uint64_t size, const std::string& what) {
  std::vector<std::byte> header(std::min<std::uint64_t>(kNpyPrefix, size));
  read(0, header);
  const std::uint64_t length = npy_header_length(header, what);
  if (length > size) throw DataError(what + ": truncated .npy header");
  const std::size_t first = std::min<std::uint64_t>(header.size(), length);
  header.resize(length);
  read(first, std::span(header).subspan(first));
  NpyHeader h = parse_npy_header(header, what);
  if (!h.unread_type.empty()) return h;
  const std::uint64_t wanted = format::array_bytes(h.shape, h.type, what), found = size - length;
  if (wanted != found)
    throw DataError(what + " has " + std::to_string(found) + " bytes, its shape and dtype need " +
                    std::to_string(wanted));
  const auto longer = std::ranges::count_if(h.shape, [](std::int64_t d) { return d > 1; });
  if (longer < 2) h.fortran_order = false;
  return h;
}

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

std::unique_ptr<ArraySource> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& array) {
  return std::make_unique<NpySource>(std::move(bytes), array);
}

}  // namespace io
