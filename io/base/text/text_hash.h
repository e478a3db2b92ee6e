// Lets unordered containers of std::string be searched by std::string_view.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace base {

// The hash of such a container, whose equality is std::equal_to<>.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

}  // namespace base
