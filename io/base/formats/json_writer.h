// Writes JSON text (RFC 8259) sequentially: without blanks, and with keys in the order of the
// calls.
#pragma once

#include <concepts>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>

namespace base {

// begin_object().member("a", 1).member("b", list).end_object(): {"a":1,"b":[...]}. The caller
// ensures that ends match beginnings and that values of objects have keys; the writer adds commas
// and escapes.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  // Starts a new line before the next value of an array, or before its end.
  JsonWriter& new_line();

  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);  // escape_text.h says how
  // The shortest text that reads back to the same number; null for NaN and infinities, which JSON
  // does not know.
  JsonWriter& value(double number);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::same_as<T, bool>)
      return ready_made(number ? "true" : "false");
    else
      return ready_made(std::to_string(number));
  }
  JsonWriter& null() { return ready_made("null"); }
  template <class T>
  JsonWriter& value(const std::optional<T>& maybe) {  // null if there is no value
    return maybe ? value(*maybe) : null();
  }
  template <std::ranges::range List>
  requires(!std::convertible_to<List, std::string_view>) JsonWriter& value(const List& list) {
    begin_array();
    for (const auto& item : list) value(item);
    return end_array();
  }
  JsonWriter& ready_made(std::string_view json);  // a value that is already JSON

  template <class T>
  JsonWriter& member(std::string_view name, const T& item) {
    return key(name).value(item);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  void separate();  // writes the separator from the previous element

  std::string text_;
  bool comma_ = false, line_ = false;  // separators before the next value
};

}  // namespace base
