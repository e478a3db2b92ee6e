// Configurations, models, the records of runs, and what one launcher tells another.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "backends/backend_error.h"
#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "models/model_catalog.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/targets.h"
#include "tools/commands/flight/flight_report.h"
#include "tools/commands/top/top_view.h"
#include "tools/folder/run_record.h"
#include "tools/launch/nodes/control_line.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/option_table.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/value_text.h"
#include "tools/report/observers/run_status.h"
#include "tools/run/data/sample_statement.h"

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

// The first byte chooses the option, the rest is its value.
void option_values(Input input) {
  if (input.empty()) return;
  const auto& options = tools::train_options();
  const tools::OptionSpec& option = options[input[0] % options.size()];
  const std::string text = text_of(input.subspan(1));
  const std::optional<std::string> canonical = tools::canonical_text(option, text);
  if (canonical && tools::canonical_text(option, *canonical) != canonical) std::abort();
  try {
    tools::resolve_run_config({{option.name, {text, "--x"}}});
  } catch (const io::Error&) {
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
  static const Folder folder;
  folder.write("flight_rank_0.json", input);
  try {
    const tools::FlightReport report =
        tools::merge_flight_records(tools::read_flight_records(folder.path()));
    tools::to_text(report);
    tools::to_json(report);
  } catch (const io::Error&) {
  }
}

void run_record(Input input) {
  static const Folder folder;
  folder.write("run.json", input);
  try {
    tools::run_record_json(tools::read_run_record(folder.path()), /*one_line=*/true);
  } catch (const io::Error&) {
  }
}

void run_status(Input input) {
  try {
    const tools::RunStatus status = tools::parse_run_status(text_of(input), "status");
    tools::run_status_json(status);
    tools::top_text(status, 1, 10, 40);
  } catch (const io::Error&) {
  }
}

void sample_statement(Input input) {
  try {
    const tools::InputSchema stated = tools::read_sample_statement(text_of(input), "checkpoint");
    const auto normalization = stated.normalization.value_or(io::Normalization::kStandard);
    const std::string text = tools::sample_statement(stated.splits, normalization);
    if (tools::sample_statement(tools::read_sample_statement(text, "again").splits,
                                normalization) != text)
      std::abort();
  } catch (const io::Error&) {
  }
}

// What is no environment is left out: it would change this process.
void control_line(Input input) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::string text = text_of(input.first(std::min<std::size_t>(input.size(), 4096)));
  for (std::size_t at = 0; (at = text.find("env ", at)) != std::string::npos; ++at) text[at] = 'E';
  if (write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  close(ends[1]);
  try {
    tools::ControlLine(ends[0]).receive_setup();
  } catch (const backends::Error&) {
  }
  close(ends[0]);
}

}  // namespace fuzz
