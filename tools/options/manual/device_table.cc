// Prints the limits of devices as a Markdown table.
#include "tools/options/manual/device_table.h"

#include "io/base/text/text_parts.h"
#include "tools/options/table/option_table.h"

namespace tools {
namespace {

// Returns e.g. "`--amp tf32`, `O1`, `O2`"; the option alone if the limit holds for all its values.
std::string values_text(const OptionSpec& option, const Condition& own) {
  std::string text = "`--" + option.name;
  if (own.kind != Condition::Kind::kOneOf) return text + "`";
  return text + " " + base::join_text(base::split_text(own.choices, '|'), "`, `") + "`";
}

}  // namespace

std::string device_table() {
  std::string table = "| option | CPU | CUDA device |\n|---|---|---|\n";
  for (const OptionSpec& option : train_options())
    for (const DeviceLimit& limit : option.limits) {
      const bool cpu = limit.kind == DeviceLimit::Kind::kCpu;
      const std::string cell = (limit.rejected ? "rejected: " : "") + limit.text;
      table += "| " + values_text(option, limit.own) + " | " + (cpu ? cell : "yes") + " | " +
               (cpu ? "yes" : cell) + " |\n";
    }
  return table;
}

}  // namespace tools
