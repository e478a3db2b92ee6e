// Formats the report.
#include "engine/train/checks/nonfinite_report.h"

namespace engine {

std::string_view to_string(OnNonFinite action) {
  switch (action) {
    case OnNonFinite::kAbort:
      return "abort";
    case OnNonFinite::kSkip:
      return "skip";
    case OnNonFinite::kContinue:
      return "continue";
  }
  return "";
}

std::string to_string(const NonFiniteReport& report) {
  const std::string found = "not finite at step " + std::to_string(report.step);
  if (!report.last_good) return "the " + report.what + " is " + found;
  const std::string good = "was finite at step " + std::to_string(*report.last_good);
  if (report.what == "loss") return "the loss " + good + ", " + found;
  return "the " + report.what + " is " + found + " (the loss " + good + ")";
}

std::string to_error(const NonFiniteReport& report, const std::string& checkpoint) {
  const std::string text = to_string(report);
  if (report.at_start)
    return text +
           "; no earlier check of this start found finite ones: resume from an earlier "
           "checkpoint, start from other weights, or look at the data";
  if (checkpoint.empty())
    return text +
           "; there is no checkpoint to continue from: start again with a lower --lr, or "
           "--clip-grad";
  return text + "; last good checkpoint: " + checkpoint + "; continue with --resume " + checkpoint +
         " and a lower --lr, or --clip-grad";
}

}  // namespace engine
