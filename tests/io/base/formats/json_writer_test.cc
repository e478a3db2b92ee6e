// JSON as the writer puts it: commas, line ends, escapes, numbers.
#include "io/base/formats/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace {

using base::JsonWriter;

TEST(JsonWriter, PutsCommasBetweenMembersAndElements) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array();
  json.value(2).begin_object().end_object().begin_array().end_array().value("x").end_array();
  json.member("c", true).end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[2,{},[],"x"],"c":true})");
}

TEST(JsonWriter, ElementsAndTheEndOfAnArrayMayBeginALine) {
  JsonWriter json;
  json.begin_array();
  for (const int i : {1, 2}) json.new_line().value(i);
  json.new_line().end_array();
  EXPECT_EQ(json.text(), "[\n1,\n2\n]");
}

TEST(JsonWriter, NumbersReadBackAndWhatJsonDoesNotKnowIsNull) {
  JsonWriter json;
  json.begin_array().value(0.1).value(1e300).value(-0.0).value(100000.0);
  json.value(std::numeric_limits<double>::quiet_NaN());
  json.value(-std::numeric_limits<double>::infinity());
  json.value(std::numeric_limits<std::int64_t>::min());
  json.value(std::numeric_limits<std::uint64_t>::max()).end_array();
  EXPECT_EQ(json.text(),
            "[0.1,1e+300,-0,1e+05,null,null,-9223372036854775808,18446744073709551615]");
}

TEST(JsonWriter, EscapesQuotesBackslashesAndControlCharacters) {
  JsonWriter json;
  json.begin_object().member("\"", std::string_view("a\\\n\x1f\0z\xc3\xa9", 8)).end_object();
  EXPECT_EQ(json.text(), "{\"\\\"\":\"a\\\\\\u000a\\u001f\\u0000z\xc3\xa9\"}");
}

TEST(JsonWriter, ListsAndWhatMayBeAbsent) {
  JsonWriter json;
  json.begin_object().member("list", std::vector<std::string>{"a", "b"});
  json.member("empty", std::vector<int>{}).member("no", std::optional<int>());
  json.member("yes", std::optional(2)).key("r").ready_made("{\"x\": 1}").end_object();
  EXPECT_EQ(json.text(), R"({"list":["a","b"],"empty":[],"no":null,"yes":2,"r":{"x": 1}})");
}

}  // namespace
