// Reads an expression of Oniguruma and writes the same one for PCRE2. A construct that the two
// match differently is an error, since it would change ids without a notice.
#include "io/tokenizer/split_expression.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "io/tokenizer/character_set.h"
#include "io/tokenizer/expression_cursor.h"

namespace io {
namespace {

constexpr int kMaxDepth = 100;

// Unicode's White_Space. PCRE2's own \s also has U+180E, which lost this property in Unicode 6.3.
constexpr std::string_view kSpaces =
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
    "\\x{3000}";
constexpr std::string_view kHexDigits = "0-9a-fA-F", kDigits = "\\p{Nd}";

constexpr std::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any"};

// Pairs of ASCII letters that match one character without case, e.g. U+FB01 or U+00DF. PCRE2 does
// not compare several characters with one.
constexpr std::string_view kLigatures[] = {"ff", "fi", "fl", "ss", "st"};

struct Flags {
  bool caseless = false, dot_all = false;
};

// One escape or one character.
struct Item {
  bool is_set = false, negated = false;
  std::string items = {};  // of a set
  std::uint32_t code = 0;  // of a character
};

std::string text_of(const Item& item) {
  return item.is_set ? set_of(item.items, item.negated).expression() : character_text(item.code);
}

class ExpressionReader {
 public:
  ExpressionReader(const std::string& source, const std::string& expression, bool extensions)
      : text_(source, expression), script_prefix_(extensions ? "sc:" : "") {}

  std::string read() {
    std::string result = alternatives({}, 0);
    if (!text_.ended()) text_.invalid("unexpected ')'");
    return result;
  }

 private:
  std::string alternatives(Flags flags, int depth) {
    check_depth(depth);
    std::string result;
    while (!text_.ended() && text_.peek() != ')') {
      if (text_.take("|")) {
        letter_ = '\0';
        result += '|';
        continue;
      }
      if (std::string_view("*+?").find(text_.peek()) != std::string_view::npos ||
          !text_.interval().empty())
        text_.invalid("a quantifier without an item");
      result += quantified(atom(flags, depth));
    }
    return result;
  }

  void check_depth(int depth) {
    if (depth > kMaxDepth) text_.invalid("nested more than " + std::to_string(kMaxDepth) + " deep");
  }

  // An interval takes no + or, if it is fixed, no ? there: these quantify it.
  std::string quantified(std::string item) {
    for (bool again = false;; again = true) {
      const std::string interval = text_.interval();
      const std::string one = interval.empty() ? text_.quantifier() : interval;
      if (one.empty()) return item;
      text_.skip_interval(interval);
      item = (again ? "(?:" + item + ")" : item) + one;
      const bool fixed = !interval.empty() && interval.find(',') == std::string::npos;
      if (!fixed && text_.take("?"))
        item += '?';
      else if (interval.empty() && text_.take("+"))
        item += '+';
      else if (!interval.empty())
        continue;
      if (!text_.quantifier_at().empty() || !text_.interval().empty())
        text_.reject("a quantifier of a quantifier");
      return item;
    }
  }

  std::string atom(Flags flags, int depth) {
    const char c = text_.peek();
    if (c == '(') return group(flags, depth);
    if (c == '[') return set(flags, 0).expression();
    for (const auto& [written, translated] : kAnchors)
      if (text_.take(written)) return std::string(translated);
    if (text_.take(".")) return flags.dot_all ? "(?s:.)" : "[^\\n]";
    const Item item = this->item(flags);
    if (flags.caseless && !item.is_set) check_caseless(item.code);
    return text_of(item);
  }

  // Their meaning does not depend on line ends that PCRE2 may be built with.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kAnchors = {
      {{"^", "(?<![^\\n])"},
       {"$", "(?![^\\n])"},
       {"\\A", "\\A"},
       {"\\z", "\\z"},
       {"\\Z", "(?=\\n?\\z)"},
       {"\\N", "[^\\n]"},
       {"\\O", "(?s:.)"},
       {"\\R", "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])"}}};

  void check_caseless(std::uint32_t code) {
    if (code >= 0x80) text_.reject("a character outside ASCII without case");
    const char letter = static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    const std::string pair = {letter_, letter};
    if (std::ranges::find(kLigatures, pair) != std::end(kLigatures))
      text_.reject("'" + pair + "' without case");
    letter_ = letter;
  }

  std::string group(Flags flags, int depth) {
    text_.take("(");
    if (text_.begins("*")) text_.reject("(*");
    if (!text_.take("?")) return closed("(?:", flags, depth);
    for (const char* kind : {":", "=", "!", ">", "<=", "<!"})
      if (text_.take(kind)) return closed(std::string("(?") + kind, flags, depth);
    bool on = true;
    for (;;) {
      if (text_.take("i"))
        flags.caseless = on;
      else if (text_.take("m"))
        flags.dot_all = on;
      else if (text_.take("-"))
        on = false;
      else
        break;
    }
    const std::string open = flags.caseless ? "(?i:" : "(?-i:";
    if (text_.take(":")) return closed(open, flags, depth);
    // Options without a colon hold up to the end of the enclosing group, across alternatives.
    if (text_.take(")")) return open + alternatives(flags, depth + 1) + ")";
    text_.reject("(?" + text_.character());
  }

  std::string closed(const std::string& open, Flags flags, int depth) {
    const std::string body = alternatives(flags, depth + 1);
    if (!text_.take(")")) text_.invalid("missing ')'");
    return open + body + ")";
  }

  CharacterSet set(Flags flags, int depth) {
    check_depth(depth);
    text_.take("[");
    CharacterSet result{.terms = {{}}, .negated = text_.take("^")};
    for (bool first = true; first || !text_.take("]"); first = false) {
      if (text_.ended()) text_.invalid("missing ']'");
      CharacterSet::Union& term = result.terms.back();
      const bool nests = text_.begins("["), intersects = text_.begins("&&");
      if (flags.caseless && (nests || intersects))
        text_.reject(std::string(nests ? "a nested set" : "&&") + " without case");
      if (intersects) {
        if (term.empty()) text_.reject("an empty side of &&");
        text_.take("&&");
        result.terms.emplace_back();
      } else if (text_.begins("[:")) {
        term.add(named_set());
      } else if (nests) {
        term.add(set(flags, depth + 1));
      } else {
        add_range(flags, depth, term);
      }
    }
    if (result.terms.back().empty()) text_.reject("an empty side of &&");
    return result;
  }

  void add_range(Flags flags, int depth, CharacterSet::Union& term) {
    const Item first = item(flags);
    if (flags.caseless && first.code >= 0x80) check_caseless(first.code);
    const auto ranges = [&] { return text_.begins("-") && !text_.begins("-]"); };
    if (first.is_set) {
      if (ranges()) text_.reject("'-' after a set");
      return term.add(set_of(first.items, first.negated));
    }
    term.items += character_text(first.code);
    if (!ranges()) return;
    text_.take("-");
    if (first.code == '-' || text_.begins("[") || text_.begins("&&"))
      text_.reject("a range with '-' at its end");
    const Item last = item(flags);
    if (last.is_set) text_.reject("a range up to a set");
    if (flags.caseless && last.code >= 0x80) check_caseless(last.code);
    if (last.code < first.code) text_.invalid("a range that descends");
    // Oniguruma's complement of a set with this range also has characters of the range.
    if (depth > 0 && first.code < 0x80 && last.code >= 0x80)
      text_.reject("a range across U+0080 in a nested set");
    term.items += "-" + character_text(last.code);
    if (ranges()) text_.reject("'-' after a range");
  }

  CharacterSet named_set() {
    text_.take("[:");
    const bool negated = text_.take("^");
    const std::string name = text_.name();
    if (!text_.take(":]")) text_.reject("[:" + name);
    if (name == "digit") return set_of(std::string(kDigits), negated);
    if (name == "space") return set_of(std::string(kSpaces), negated);
    if (name == "xdigit") return set_of(std::string(kHexDigits), negated);
    text_.reject("[:" + name + ":]");
  }

  Item item(Flags flags) {
    if (!text_.take("\\")) return {.code = text_.code()};
    for (const auto& [letter, items] :
         {std::pair{'d', kDigits}, std::pair{'s', kSpaces}, std::pair{'h', kHexDigits}}) {
      const char other = static_cast<char>(letter - 32);  // the complement
      const bool negated = text_.peek() == other;
      if (!negated && text_.peek() != letter) continue;
      text_.code();
      return {.is_set = true, .negated = negated, .items = std::string(items)};
    }
    if (!text_.begins("p{") && !text_.begins("P{")) return {.code = text_.escaped_code()};
    if (flags.caseless) text_.reject("\\p{...} without case");
    return property();
  }

  Item property() {
    bool negated = text_.take("P{");
    if (!negated) text_.take("p{");
    if (text_.take("^")) negated = !negated;
    const std::string name = text_.name();
    if (name.empty() || !text_.take("}")) text_.reject("\\p{" + name);
    const auto category = std::ranges::find(kCategories, name);
    return {.is_set = true,
            .items = std::string(negated ? "\\P{" : "\\p{") +
                     (category == std::end(kCategories) ? script_prefix_ : "") + name + "}"};
  }

  ExpressionCursor text_;
  const std::string script_prefix_;
  char letter_ = '\0';  // the last character without case
};

}  // namespace

std::string pcre2_expression(const std::string& source, const std::string& expression,
                             bool script_extensions) {
  return ExpressionReader(source, expression, script_extensions).read();
}

}  // namespace io
