// A set of characters as Oniguruma writes it, with nested sets and intersections, for PCRE2.
#pragma once

#include <string>
#include <vector>

namespace io {

struct CharacterSet {
  struct Union {
    std::string items;  // what PCRE2 accepts between brackets
    std::vector<CharacterSet> nested;
    bool empty() const { return items.empty() && nested.empty(); }
    // Adds a set. One that needs no brackets of its own becomes items.
    void add(const CharacterSet& set);
  };
  std::vector<Union> terms;  // their intersection; at least one
  bool negated = false;      // its complement

  // Returns an expression that matches one character of the set.
  std::string expression() const;
};

// Returns the set of these items.
CharacterSet set_of(const std::string& items, bool negated);

}  // namespace io
