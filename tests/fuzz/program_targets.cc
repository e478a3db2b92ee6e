// Configurations, models and the records of runs.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "backends/backend_error.h"
#include "engine/core/error.h"
#include "io/base/io_error.h"
#include "models/model_catalog.h"
#include "tests/fuzz/targets.h"
#include "tools/flight/flight_report.h"
#include "tools/options/option_table.h"
#include "tools/options/run_config.h"
#include "tools/options/value_text.h"

namespace fuzz {
namespace {

std::string text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

}  // namespace

void config(Input input) {
  try {
    tools::ConfigValues values;
    tools::apply_config_text(text_of(input), "file", values);
    tools::apply_defaults(values);
    tools::resolve_run_config(values);
  } catch (const io::Error&) {
  }
}

void option_values(Input input) {
  const std::string text = text_of(input);
  for (const tools::OptionSpec& option : tools::train_options()) {
    const std::optional<std::string> canonical = tools::canonical_text(option, text);
    if (canonical && tools::canonical_text(option, *canonical) != canonical) std::abort();
    try {
      tools::resolve_run_config({{option.name, {text, "--x"}}});
    } catch (const io::Error&) {
    }
  }
}

void layer_list(Input input) {
  try {
    models::ModelOptions options;
    options.sample_shape = {28, 28, 1};
    options.classes = 10;
    options.definition = text_of(input);
    models::build_model("file.toml", options);
  } catch (const engine::ModelError&) {
  } catch (const engine::ShapeError&) {
  }
}

void flight_record(Input input) {
  char folder[] = "/tmp/engine-fuzz-XXXXXX";
  if (mkdtemp(folder) == nullptr) std::abort();
  std::ofstream(std::string(folder) + "/flight_rank_0.json", std::ios::binary) << text_of(input);
  try {
    const tools::FlightReport report =
        tools::merge_flight_records(tools::read_flight_records(folder));
    tools::to_text(report);
    tools::to_json(report);
  } catch (const io::Error&) {
  }
  std::filesystem::remove_all(folder);
}

}  // namespace fuzz
