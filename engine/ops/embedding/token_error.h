// The error of a token id that the model's vocabulary does not have.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/error.h"

namespace engine::ops {

struct OutOfRangeToken {
  std::int64_t token = 0, vocabulary = 0;
  std::int64_t row = 0, position = 0;  // place in the batch, from 0

  // Returns the message for a token of `place`, e.g. "sample 12".
  std::string text(const std::string& place) const {
    return "token " + std::to_string(token) + " at position " + std::to_string(position) + " of " +
           place + " is out of range: the model has a vocabulary of " + std::to_string(vocabulary) +
           " tokens, ids 0 to " + std::to_string(vocabulary - 1);
  }
};

class TokenError : public InputError {
 public:
  explicit TokenError(const OutOfRangeToken& token)
      : TokenError(token, "row " + std::to_string(token.row) + " of the batch") {}
  TokenError(const OutOfRangeToken& token, const std::string& place)
      : InputError(token.text(place)), token_(token) {}
  const OutOfRangeToken& token() const { return token_; }

 private:
  OutOfRangeToken token_;
};

}  // namespace engine::ops
