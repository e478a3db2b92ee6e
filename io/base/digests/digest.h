// XXH3 digests of memory: fast and well mixed, but not secure against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace base {

struct Digest {  // XXH3-128
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest&) const = default;
};
Digest digest_of(std::span<const std::byte> bytes);

class StreamDigest {  // the same for data that is added piece by piece
 public:
  StreamDigest();
  void add(std::span<const std::byte> bytes);
  Digest value() const;  // digest of the data added so far

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::uint64_t short_digest_of(std::string_view text);  // XXH3-64

std::string hex_text(std::uint64_t digest);  // 16 hexadecimal digits
std::string hex_text(const Digest& digest);  // 32 hexadecimal digits: high, then low

}  // namespace base
