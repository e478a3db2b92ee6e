// Takes options from a checkpoint's TOML.
#include "tools/commands/predict/saved_run.h"

#include <utility>

#include "tools/options/table/option_table.h"
#include "tools/options/table/run_config.h"

namespace tools {

const std::vector<std::string>& saved_options() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const OptionSpec& option : train_options())
      if (option.of_model) found.push_back(option.name);
    return found;
  }();
  return names;
}

void take_saved_options(const ConfigValues& saved, ConfigValues& values) {
  for (const std::string& name : saved_options())
    if (const auto found = saved.find(name); found != saved.end() && !values.contains(name))
      values[name] = found->second;
  // An environment variable does not replace the run's data by another kind of location.
  constexpr std::pair<const char*, const char*> kPlaces[] = {{"annotations", "data-dir"},
                                                             {"data-dir", "annotations"}};
  for (const auto& [place, other] : kPlaces)
    if (const auto found = values.find(place);
        found != values.end() && !found->second.value.empty())
      values.try_emplace(other, ConfigValue{"", kUnusedSource});
}

}  // namespace tools
