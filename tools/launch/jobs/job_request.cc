// Parses the values that schedulers spell in their own ways.
#include "tools/launch/jobs/job_request.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "tools/options/table/value_text.h"

namespace tools {
namespace {

constexpr std::int64_t kMaxSeconds = 3650LL * 24 * 3600, kMaxIndex = 4'000'000;
constexpr std::size_t kMaxTasks = 10'000;

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Returns one number per part; nothing if one is not a number of 0 or more.
std::optional<std::vector<std::int64_t>> numbers_of(const std::string& text, char separator) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : base::split_text(text, separator)) {
    const auto number = parse_integer(part);
    if (!number || *number < 0 || *number > kMaxSeconds) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// Without days the parts are minutes, minutes:seconds or hours:minutes:seconds; with days they are
// hours, hours:minutes or hours:minutes:seconds.
std::optional<std::int64_t> seconds_of(const std::string& text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  const auto days = has_days ? parse_integer(text.substr(0, dash)) : std::optional<std::int64_t>(0);
  const auto parts = numbers_of(has_days ? text.substr(dash + 1) : text, ':');
  if (!days || *days < 0 || *days > kMaxSeconds / 86'400 || !parts || parts->size() > 3)
    return std::nullopt;
  const std::vector<std::int64_t>& p = *parts;
  std::int64_t seconds = *days * 86'400;
  if (p.size() == 3 || has_days) {
    constexpr std::int64_t kUnits[] = {3600, 60, 1};
    for (std::size_t i = 0; i < p.size(); ++i) seconds += p[i] * kUnits[i];
  } else {
    seconds += p[0] * 60 + (p.size() == 2 ? p[1] : 0);
  }
  return seconds >= 0 && seconds <= kMaxSeconds ? std::optional(seconds) : std::nullopt;
}

// "3", "0-4" or "1-5:2".
bool add_range(const std::string& text, std::vector<std::int64_t>& tasks) {
  const std::size_t colon = text.find(':');
  const auto step = colon == std::string::npos ? std::optional<std::int64_t>(1)
                                               : parse_integer(text.substr(colon + 1));
  const auto ends = numbers_of(text.substr(0, colon), '-');
  if (!ends || ends->size() > 2 || !step || *step < 1) return false;
  if (ends->back() < ends->front() || ends->back() > kMaxIndex) return false;
  if (ends->size() == 1 && colon != std::string::npos) return false;
  for (std::int64_t task = ends->front(); task <= ends->back(); task += *step) {
    if (tasks.size() >= kMaxTasks) return false;
    tasks.push_back(task);
  }
  return true;
}

}  // namespace

std::int64_t parse_time_limit(const std::string& text) {
  const std::string lower = lower_case(text);
  if (lower == "unlimited" || lower == "infinite") return 0;
  const std::optional<std::int64_t> seconds = seconds_of(text);
  if (!seconds)
    throw io::ConfigError("--time '" + text +
                          "': expected a time limit as sbatch takes it: 30 (minutes), 2:00:00, "
                          "1-12:00:00 (days-hours:minutes:seconds), UNLIMITED");
  return *seconds;
}

JobArray parse_job_array(const std::string& text) {
  JobArray array{.spec = text};
  const std::size_t percent = text.find('%');
  const auto at_once = percent == std::string::npos ? std::optional<std::int64_t>(1)
                                                    : parse_integer(text.substr(percent + 1));
  bool valid = at_once && *at_once > 0;
  for (const std::string& range : base::split_text(text.substr(0, percent), ','))
    valid = valid && add_range(range, array.tasks);
  if (!valid)
    throw io::ConfigError("--array '" + text +
                          "': expected numbers such as 0-4, 1-9:2, 3,7 or 0-99%10 (10 at once), at "
                          "most 10000 of them");
  return array;
}

std::int64_t parse_memory(const std::string& text) {
  constexpr std::string_view kUnits = "kmgt";
  std::string digits = lower_case(text);
  if (digits.size() > 1 && digits.back() == 'b' &&
      kUnits.find(digits[digits.size() - 2]) != kUnits.npos)
    digits.pop_back();
  std::size_t unit = digits.empty() ? kUnits.npos : kUnits.find(digits.back());
  if (unit == kUnits.npos)
    unit = 1;
  else
    digits.pop_back();
  const auto number = parse_integer(digits);
  if (!number || *number < 0 || *number > kMaxSeconds)
    throw io::ConfigError("--mem '" + text +
                          "': expected the memory of a node, as 16G, 800M or 16384 (MiB), or 0 "
                          "for all of it");
  constexpr std::int64_t kFactors[] = {0, 1, 1024, 1024 * 1024};
  return unit == 0 ? (*number + 1023) / 1024 : *number * kFactors[unit];
}

std::vector<std::string> split_at_task(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find("%a", at)) != std::string::npos; at = end + 2)
    parts.push_back(text.substr(at, end - at));
  parts.push_back(text.substr(at));
  return parts;
}

std::string of_task(const std::string& text, std::int64_t task) {
  return base::join_text(split_at_task(text), std::to_string(task));
}

std::vector<std::string> job_folders(const JobRequest& request) {
  if (request.array.spec.empty()) return {request.folder};
  std::vector<std::string> folders;
  for (const std::int64_t task : request.array.tasks)
    folders.push_back(of_task(request.folder, task));
  return folders;
}

}  // namespace tools
