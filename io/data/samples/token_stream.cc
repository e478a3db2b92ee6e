// Reads ids in blocks with pread(), which needs no memory of the process for the file, and notices
// a file that has become shorter; a mapped one would end the process with SIGBUS.
#include "io/data/samples/token_stream.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/numbers/number_bytes.h"

namespace io {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 16;  // a multiple of every width
// The digest of a large stream reads parts of it.
constexpr std::int64_t kSampledParts = 64;
constexpr std::size_t kSampledIds = std::size_t{1} << 14;

[[noreturn]] void refuse(const std::string& path, std::int64_t position, const std::string& found,
                         std::int64_t limit, const std::string& how) {
  throw DataError((path.empty() ? "" : path + ": ") + "token out of range at position " +
                  std::to_string(position) + ": found " + found + ", expected 0.." +
                  std::to_string(limit - 1) + how);
}

std::int32_t checked_id(const std::string& path, const TokenLayout& layout, std::int64_t position,
                        std::uint64_t id) {
  const bool negative = layout.is_signed && id >> (8 * layout.width - 1) != 0;
  if (id <= static_cast<std::uint64_t>(kMaxTokenId) && !negative)
    return static_cast<std::int32_t>(id);
  const auto shift = static_cast<int>(64 - 8 * layout.width);
  const std::string found = layout.is_signed
                                ? std::to_string(static_cast<std::int64_t>(id << shift) >> shift)
                                : std::to_string(id);
  refuse(path, position, found, kMaxTokenId + 1,
         ", read as " + std::to_string(8 * layout.width) + " bits each");
}

}  // namespace

void decode_tokens(const std::string& path, const TokenLayout& layout, std::int64_t position,
                   std::span<const std::uint8_t> bytes, std::span<std::int32_t> out) {
  if (layout.width == 2 && !layout.is_signed) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = checked_id(path, layout, position + static_cast<std::int64_t>(i),
                        base::little_endian(&bytes[i * layout.width], layout.width));
}

TokenStream::TokenStream(std::vector<std::int32_t> tokens)
    : count_(static_cast<std::int64_t>(tokens.size())),
      held_(std::make_shared<const std::vector<std::int32_t>>(std::move(tokens))) {}

TokenStream::TokenStream(std::string path, OpenedFile file, const TokenLayout& layout,
                         std::int64_t count)
    : count_(count),
      stored_(std::make_shared<const Stored>(
          Stored{std::move(path), std::move(file.descriptor), layout})) {}

void TokenStream::keep_first(std::int64_t count) { count_ = std::min(count, count_); }

bool TokenStream::is_large() const {
  return stored_ && count_ * static_cast<std::int64_t>(stored_->layout.width) > kCheckedBytes;
}

void TokenStream::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  if (!stored_) {
    if (!out.empty()) std::copy_n(held_->begin() + begin, out.size(), out.begin());
    return expect_below_limit(begin, out);
  }
  const TokenLayout& layout = stored_->layout;
  std::array<std::uint8_t, kBlockBytes> block;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t ids = std::min(out.size() - done, block.size() / layout.width);
    const std::int64_t position = begin + static_cast<std::int64_t>(done);
    const std::size_t wanted = ids * layout.width;
    const std::size_t at = layout.first + static_cast<std::size_t>(position) * layout.width;
    for (std::size_t have = 0; have < wanted;) {
      const ssize_t got = pread(stored_->file.fd(), block.data() + have, wanted - have,
                                static_cast<off_t>(at + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw Error(stored_->path + ": reading failed: " + base::system_error_text(errno));
      if (got == 0)
        throw DataError(stored_->path + ": has become shorter since it was opened: found " +
                        std::to_string(at + have) + " bytes, expected at least " +
                        std::to_string(at + wanted));
      have += static_cast<std::size_t>(got);
    }
    const std::span<std::int32_t> part = out.subspan(done, ids);
    decode_tokens(stored_->path, layout, position, block, part);
    expect_below_limit(position, part);
    done += ids;
  }
}

void TokenStream::expect_below_limit(std::int64_t begin, std::span<const std::int32_t> ids) const {
  const auto beyond = std::ranges::find_if(ids, [this](std::int32_t id) { return id >= limit_; });
  if (beyond == ids.end()) return;
  refuse(stored_ ? stored_->path : "", begin + (beyond - ids.begin()), std::to_string(*beyond),
         limit_, "");
}

// Calls use(position, ids) for each part of the stream.
template <class Use>
void TokenStream::for_each_part(Use use) const {
  std::array<std::int32_t, kBlockBytes / sizeof(std::int32_t)> ids;
  for (std::int64_t at = 0; at < count_; at += static_cast<std::int64_t>(ids.size())) {
    const std::span part =
        std::span(ids).first(std::min(ids.size(), static_cast<std::size_t>(count_ - at)));
    copy(at, part);
    use(at, part);
  }
}

std::vector<std::int32_t> TokenStream::all() const {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count_));
  copy(0, ids);
  return ids;
}

std::int32_t TokenStream::highest() const {
  std::int32_t most = -1;
  for_each_part([&](std::int64_t, std::span<const std::int32_t> ids) {
    most = std::max(most, std::ranges::max(ids));
  });
  return most;
}

void TokenStream::check() const {
  if (!is_large()) static_cast<void>(highest());
}

void TokenStream::add_to(base::StreamDigest& digest) const {
  if (!is_large())
    return for_each_part(
        [&](std::int64_t, std::span<const std::int32_t> ids) { digest.add(std::as_bytes(ids)); });
  digest.add(std::as_bytes(std::span(&count_, 1)));
  std::array<std::int32_t, kSampledIds> ids;
  for (std::int64_t part = 0; part < kSampledParts; ++part) {
    copy((count_ - static_cast<std::int64_t>(ids.size())) / (kSampledParts - 1) * part, ids);
    digest.add(std::as_bytes(std::span<const std::int32_t>(ids)));
  }
}

}  // namespace io
