// Parses the arguments of `engine train` into its configuration, also for commands that check them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"

namespace CLI {
class App;
}

namespace tools {

struct TrainArguments {
  ConfigValues values;  // of the command line only
  std::string config_file;
};

// `add_more` adds options beyond the table. Returns nothing if help was requested, and printed.
// Throws UsageError as parse() does.
std::optional<TrainArguments> parse_train_arguments(const Arguments& arguments,
                                                    const std::function<void(CLI::App&)>& add_more);

// If the model is a folder of Hugging Face or an ONNX file that predicts tokens, and the data set
// consists of tokens, gives it the model's number of tokens, unless --vocabulary-size is given; of
// an ONNX file that reads token ids also --context, for texts as well. Throws engine::ModelError.
void take_vocabulary(ConfigValues& values);

// Completes the values from the environment, the configuration file, the run that is resumed and
// the defaults. `notices` gets lines about the number of ranks, variables without effect, a network
// from a file, and a tokenizer that is not read. Throws io::ConfigError, and engine::ModelError for
// a tokenizer with more tokens than the model.
RunConfig read_train_config(const TrainArguments& arguments, std::vector<std::string>& notices);

}  // namespace tools
