// Compares a resumed run with the run that it continues.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_table.h"

namespace tools {

struct OptionChange {
  std::string name, before, now, source;  // values as text; source: of `now`
  // Makes a different experiment: the model, the data, their order, or the kind of optimizer.
  bool experiment = false;
};

// Returns the options whose values differ, in the order of the table. An option without a value on
// one side (it has no effect there, or is newer than the run) counts with its default. Options of a
// single start, and the locations of the data, are omitted.
std::vector<OptionChange> option_changes(const ConfigValues& before, const ConfigValues& now);

// Does the same for the locations of the data, which may differ if their content does not.
std::vector<OptionChange> place_changes(const ConfigValues& before, const ConfigValues& now);

// Returns e.g. "lr 0.05 -> 0.01 (--lr)".
std::string change_text(const OptionChange& change);

// Throws io::ConfigError for the first change that makes a different experiment and that `allowed`
// (names, without the --) does not contain. `run` names the run in the message.
void check_changes(const std::vector<OptionChange>& changes,
                   const std::vector<std::string>& allowed, const std::string& run);

}  // namespace tools
