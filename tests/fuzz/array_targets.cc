// Files of arrays: read as verify, import and train --resume read them.
#include <algorithm>
#include <cstring>
#include <string>

#include <zlib.h>

#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint_format.h"
#include "io/interchange/array_files.h"
#include "io/interchange/numpy/npy_header.h"
#include "io/interchange/zip/zip_archive.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

void read_all(Input input) {
  try {
    io::read_arrays(*io::open_arrays(io::memory_bytes(std::as_bytes(input), "file")));
  } catch (const io::Error&) {
  }
}

constexpr std::size_t kPreamble = 24, kHeaderLength = 12, kHeaderSum = 20, kTrailer = 24;

template <class T>
void put(std::vector<std::uint8_t>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

void checkpoint(Input input) {
  read_all(input);
  const auto bytes = std::as_bytes(input);
  try {
    io::parse_checkpoint({bytes.begin(), bytes.end()}, "file");
  } catch (const io::Error&) {
  }
}

void safetensors(Input input) { read_all(input); }

void npz(Input input) { read_all(input); }

void torch_archive(Input input) { read_all(input); }

// A pickle alone, in an archive with two storages.
void torch_pickle(Input input) {
  static constexpr std::byte kNumbers[48]{};
  std::vector<std::byte> archive;
  io::ZipWriter writer([&](std::span<const std::byte> bytes) {
    archive.insert(archive.end(), bytes.begin(), bytes.end());
  });
  writer.add("a/data.pkl", {std::as_bytes(input)});
  writer.add("a/data/0", {std::span(kNumbers)});
  writer.add("a/data/1", {std::span(kNumbers).first(4)});
  writer.finish();
  read_all({reinterpret_cast<const std::uint8_t*>(archive.data()), archive.size()});
}

void npy_header(Input input) {
  try {
    io::parse_npy_header(std::as_bytes(input), "file");
  } catch (const io::Error&) {
  }
}

void repair_checkpoint(std::vector<std::uint8_t>& bytes) {
  if (bytes.size() < kPreamble + kTrailer) return;
  std::memcpy(bytes.data(), io::format::kMagic.data(), io::format::kMagic.size());
  std::memcpy(bytes.data() + bytes.size() - 8, io::format::kMagic.data(), 8);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data() + kHeaderLength, sizeof header);
  header = std::min<std::uint64_t>(header, bytes.size() - kPreamble - kTrailer);
  put(bytes, kHeaderLength, header);
  uLong sum = crc32(0, bytes.data(), kHeaderSum);
  sum = crc32(sum, bytes.data() + kPreamble, static_cast<uInt>(header));
  put(bytes, kHeaderSum, static_cast<std::uint32_t>(sum));
  // Of all that comes before it; a wrong one is found by the reader's own writer of trailers.
  const auto content = std::as_bytes(std::span(bytes)).first(bytes.size() - kTrailer);
  const std::vector<std::byte> trailer = io::format::encode_trailer(base::digest_of(content));
  std::memcpy(bytes.data() + content.size(), trailer.data(), trailer.size());
}

void repair_torch_archive(std::vector<std::uint8_t>& bytes) { repair_npz(bytes); }

// For each entry of the directory that lies within the archive: the sum and the sizes that its
// bytes really have, in both headers.
void repair_npz(std::vector<std::uint8_t>& bytes) {
  const auto u16 = [&](std::size_t at) { return bytes[at] | bytes[at + 1] << 8; };
  const auto u32 = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  constexpr std::size_t kLocal = 30, kEntry = 46, kMost = 1 << 20;
  constexpr char kEntryMagic[] = "PK\1\2";
  for (std::size_t at = 0; at + kEntry <= bytes.size(); ++at) {
    if (std::memcmp(bytes.data() + at, kEntryMagic, 4) != 0) continue;
    const std::size_t local = u32(at + 42);
    if (local + kLocal > bytes.size()) continue;
    const std::size_t data = local + kLocal + u16(local + 26) + u16(local + 28);
    if (data > at) continue;
    std::uint32_t packed =
        std::min<std::uint32_t>(u32(at + 20), static_cast<std::uint32_t>(at - data));
    std::vector<std::uint8_t> plain(bytes.begin() + static_cast<std::ptrdiff_t>(data),
                                    bytes.begin() + static_cast<std::ptrdiff_t>(data + packed));
    if (u16(at + 10) == Z_DEFLATED) {
      z_stream stream{};
      std::vector<std::uint8_t> out(kMost);
      if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) continue;
      stream.next_in = plain.data();
      stream.avail_in = packed;
      stream.next_out = out.data();
      stream.avail_out = kMost;
      inflate(&stream, Z_FINISH);
      out.resize(stream.total_out);
      packed = static_cast<std::uint32_t>(stream.total_in);
      inflateEnd(&stream);
      plain = std::move(out);
    }
    const auto sum =
        static_cast<std::uint32_t>(crc32(0, plain.data(), static_cast<uInt>(plain.size())));
    for (const std::size_t field : {at + 16, local + 14}) {
      put(bytes, field, sum);
      put(bytes, field + 4, packed);
      put(bytes, field + 8, static_cast<std::uint32_t>(plain.size()));
    }
  }
}

}  // namespace fuzz
