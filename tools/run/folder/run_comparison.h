// What a resumed run does otherwise than the one it goes on from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_table.h"

namespace tools {

struct OptionChange {
  std::string name, before, now, source;  // values as text; source: of `now`
  // It makes another experiment: the model, the data, their order, or the kind of optimizer.
  bool experiment = false;
};

// Options whose values differ, in the order of the table. An option that has no value on one side
// (it plays no part there, or is newer than the run) counts with its default. What belongs to one
// start and not to the run is left out, and so are the places of the data.
std::vector<OptionChange> option_changes(const ConfigValues& before, const ConfigValues& now);

// The same for the places of the data, which may differ where their content does not.
std::vector<OptionChange> place_changes(const ConfigValues& before, const ConfigValues& now);

// "lr 0.05 -> 0.01 (--lr)"
std::string change_text(const OptionChange& change);

// Throws io::ConfigError for the first change that makes another experiment and that `allowed`
// (names, without the --) does not have. `run` stands for the run in the message.
void check_changes(const std::vector<OptionChange>& changes,
                   const std::vector<std::string>& allowed, const std::string& run);

}  // namespace tools
