// PCRE2 has neither nested sets nor intersections: lookaheads and alternatives of one character
// each have the same matches.
#include "io/tokenizer/character_set.h"

namespace io {
namespace {

std::string expression_of(const CharacterSet::Union& set) {
  std::string result = set.items.empty() ? "" : "[" + set.items + "]";
  for (const CharacterSet& nested : set.nested) {
    if (!result.empty()) result += '|';
    result += nested.expression();
  }
  return set.nested.empty() ? result : "(?:" + result + ")";
}

}  // namespace

void CharacterSet::Union::add(const CharacterSet& set) {
  if (set.negated || set.terms.size() != 1 || !set.terms[0].nested.empty())
    nested.push_back(set);
  else
    items += set.terms[0].items;
}

std::string CharacterSet::expression() const {
  if (terms.size() == 1 && terms[0].nested.empty())
    return (negated ? "[^" : "[") + terms[0].items + "]";
  std::string all;
  for (std::size_t i = 0; i + 1 < terms.size(); ++i) all += "(?=" + expression_of(terms[i]) + ")";
  all += expression_of(terms.back());
  return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
}

CharacterSet set_of(const std::string& items, bool negated) {
  return {.terms = {{.items = items, .nested = {}}}, .negated = negated};
}

}  // namespace io
