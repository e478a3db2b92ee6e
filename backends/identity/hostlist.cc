// Parses SLURM's hostlists: splits a name into plain text and groups, and expands the groups like
// the digits of a counter.
#include "backends/identity/hostlist.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "backends/backend_error.h"

namespace backends {
namespace {

constexpr std::size_t kMaxHosts = 65536, kMaxCharacters = 253;
constexpr std::size_t kMaxDigits = 18;  // fits 64 bits

struct Range {
  std::uint64_t first = 0, last = 0;
  std::size_t width = 0;  // width of the lower bound as written
  std::uint64_t count() const { return last - first + 1; }
};

struct Part {
  std::string text;           // before the group
  std::vector<Range> ranges;  // empty: no group follows
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.' || c == ':' || c == '%' || c == '@';
}

class HostlistParser {
 public:
  HostlistParser(std::string_view list, std::string_view what) : list_(list), what_(what) {}

  std::vector<std::string> parse() {
    while (at_ < list_.size()) {
      if (list_[at_] == ',' || is_blank(list_[at_])) {
        ++at_;
      } else {
        start_ = at_;
        append_hosts(parse_name());
      }
    }
    if (hosts_.empty()) fail(0, "no host in it");
    return std::move(hosts_);
  }

 private:
  [[noreturn]] void fail(std::size_t position, const std::string& why) const {
    const auto shortened = [](std::string_view text, std::size_t most) {
      return "\"" + std::string(text.substr(0, most)) + (text.size() > most ? "..." : "") + "\"";
    };
    std::string where;
    if (position < list_.size())
      where = " position " + std::to_string(position + 1) + " at " +
              shortened(list_.substr(position), 24) + ":";
    throw ConfigurationError(std::string(what_) + " " + shortened(list_, 80) + ":" + where + " " +
                             why + "; expected a host list such as n[01-03,7],login");
  }

  std::vector<Part> parse_name() {
    std::vector<Part> parts(1);
    for (; at_ < list_.size() && list_[at_] != ',' && !is_blank(list_[at_]); ++at_) {
      const char c = list_[at_];
      if (c == '[') {
        parts.back().ranges = parse_group();
        parts.emplace_back();
      } else if (is_name_character(c)) {
        parts.back().text += c;
      } else {
        fail(at_,
             c == ']' ? "a bracket closes that was not opened" : "not a character of a host name");
      }
    }
    return parts;
  }

  // Starts at the opening bracket and ends at the closing one.
  std::vector<Range> parse_group() {
    const std::size_t opened = at_++;
    std::vector<Range> ranges;
    for (;;) {
      ranges.push_back(parse_range());
      if (at_ == list_.size()) fail(opened, "the bracket is not closed");
      if (list_[at_] == ']') return ranges;
      if (list_[at_] != ',') fail(at_, "neither a number nor a range A-B");
      ++at_;
    }
  }

  Range parse_range() {
    const std::size_t begin = at_;
    Range range;
    range.first = range.last = parse_number(range.width);
    if (at_ < list_.size() && list_[at_] == '-') {
      ++at_;
      std::size_t unused = 0;
      range.last = parse_number(unused);
      if (range.last < range.first) fail(begin, "the range runs backwards");
    }
    return range;
  }

  std::uint64_t parse_number(std::size_t& digits) {
    const std::size_t begin = at_;
    while (at_ < list_.size() && is_digit(list_[at_])) ++at_;
    digits = at_ - begin;
    if (digits == 0) {
      if (at_ == list_.size()) fail(list_.rfind('['), "the bracket is not closed");
      fail(begin, "a number is missing");
    }
    if (digits > kMaxDigits)
      fail(begin, "a number of more than " + std::to_string(kMaxDigits) + " digits");
    std::uint64_t number = 0;
    std::from_chars(list_.data() + begin, list_.data() + at_, number);
    return number;
  }

  void append_hosts(const std::vector<Part>& parts) {
    std::vector<std::vector<std::string>> groups;
    std::size_t hosts = 1, characters = 0;
    for (const Part& part : parts) {
      characters += part.text.size();
      if (part.ranges.empty()) continue;
      std::uint64_t count = 0;
      for (const Range& range : part.ranges) {
        if (range.count() > kMaxHosts - count) fail_too_many_hosts();
        count += range.count();
      }
      if (count > kMaxHosts / hosts) fail_too_many_hosts();
      hosts *= count;
      groups.push_back(numbers_of(part.ranges));
      characters +=
          std::max_element(groups.back().begin(), groups.back().end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); })
              ->size();
    }
    if (hosts > kMaxHosts - hosts_.size()) fail_too_many_hosts();
    if (characters > kMaxCharacters)
      fail(start_, "a name of more than " + std::to_string(kMaxCharacters) + " characters");
    append_expanded(parts, groups, hosts);
  }

  [[noreturn]] void fail_too_many_hosts() const {
    fail(start_, "more than " + std::to_string(kMaxHosts) + " hosts");
  }

  static std::vector<std::string> numbers_of(const std::vector<Range>& ranges) {
    std::vector<std::string> numbers;
    for (const Range& range : ranges) {
      for (std::uint64_t n = range.first; n <= range.last; ++n) {
        const std::string text = std::to_string(n);
        numbers.push_back(
            std::string(range.width > text.size() ? range.width - text.size() : 0, '0') + text);
      }
    }
    return numbers;
  }

  void append_expanded(const std::vector<Part>& parts,
                       const std::vector<std::vector<std::string>>& groups, std::size_t hosts) {
    std::vector<std::size_t> wheel(groups.size(), 0);
    for (std::size_t made = 0; made < hosts; ++made) {
      std::string name;
      for (std::size_t i = 0, g = 0; i < parts.size(); ++i) {
        name += parts[i].text;
        if (!parts[i].ranges.empty()) {
          name += groups[g][wheel[g]];
          ++g;
        }
      }
      hosts_.push_back(std::move(name));
      // SLURM's order: the last group varies fastest, then the first, the second and so on.
      for (std::size_t turned = 0; turned < wheel.size(); ++turned) {
        const std::size_t g = turned == 0 ? wheel.size() - 1 : turned - 1;
        if (++wheel[g] < groups[g].size()) break;
        wheel[g] = 0;
      }
    }
  }

  const std::string_view list_, what_;
  std::size_t at_ = 0, start_ = 0;  // position of the parser; start of the current name
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list, std::string_view what) {
  return HostlistParser(list, what).parse();
}

}  // namespace backends
