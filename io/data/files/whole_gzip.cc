// Uses libdeflate, which needs the unpacked length: a gzip file ends with it (RFC 1952, 2.3.1).
#include "io/data/files/whole_gzip.h"

#include <libdeflate.h>

#include <memory>

#include "io/base/machine/large_pages.h"

namespace io {

std::vector<std::uint8_t> unpack_whole_gzip(std::span<const std::uint8_t> file,
                                            std::uint64_t most) {
  constexpr std::size_t kLengthBytes = 4, kFewestBytes = 18;
  if (file.size() < kFewestBytes) return {};
  std::uint64_t length = 0;
  for (std::size_t i = 1; i <= kLengthBytes; ++i) length = length << 8 | file[file.size() - i];
  if (length == 0 || length > most) return {};
  struct Free {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };
  const std::unique_ptr<libdeflate_decompressor, Free> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) return {};
  std::vector<std::uint8_t> content;
  content.reserve(length);
  base::use_large_pages(content.data(), length);
  content.resize(length);
  std::size_t used = 0, made = 0;
  const libdeflate_result result = libdeflate_gzip_decompress_ex(
      decompressor.get(), file.data(), file.size(), content.data(), content.size(), &used, &made);
  if (result != LIBDEFLATE_SUCCESS || used != file.size() || made != length) return {};
  return content;
}

}  // namespace io
