// Computes digests with libxxhash.
#include "io/base/digests/digest.h"

#include <xxhash.h>
#ifdef ENGINE_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>  // the same names, for the instruction set that the CPU has
#endif

#include <cstdio>
#include <new>

namespace base {

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

StreamDigest::StreamDigest() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void StreamDigest::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void StreamDigest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Digest StreamDigest::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {hash.low64, hash.high64};
}

std::uint64_t short_digest_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string hex_text(std::uint64_t digest) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(digest));
  return digits;
}

std::string hex_text(const Digest& digest) { return hex_text(digest.high) + hex_text(digest.low); }

}  // namespace base
