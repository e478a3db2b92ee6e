// Non-finite values in a training run, and the possible reactions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace engine {

enum class OnNonFinite {
  kAbort,     // the run ends on all ranks (NonFiniteError) without saving anything more
  kSkip,      // a step with a non-finite loss or gradient changes nothing on any rank
  kContinue,  // the run continues
};
std::string_view to_string(OnNonFinite action);

struct NonFiniteReport {
  OnNonFinite action = OnNonFinite::kAbort;
  std::int64_t step = 0;                  // after which it was found
  std::optional<std::int64_t> last_good;  // the last step whose loss is known to be finite
  std::string what;            // "loss", "test loss", "gradient norm", "parameter 'fc.weight'"
  bool at_start = false;       // no step of this run was finite
  bool of_evaluation = false;  // what is not finite is the result of an evaluation

  // An evaluation changes nothing, so there is nothing to skip.
  bool ends_run() const {
    return action == OnNonFinite::kAbort || (action == OnNonFinite::kSkip && !of_evaluation);
  }
};

// "the loss was finite at step 600, not finite at step 612"; "the parameter 'fc.weight' is not
// finite at step 612 (the loss was finite at step 611)".
std::string to_string(const NonFiniteReport& report);
// The same with the way to continue: `checkpoint` is the last good checkpoint, "" if there is none.
std::string to_error(const NonFiniteReport& report, const std::string& checkpoint);

}  // namespace engine
