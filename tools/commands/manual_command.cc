// Implements `engine manual`, for the build: writes manual pages, one per command, to a folder.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "io/base/files/io_error.h"
#include "io/base/time/utc_time.h"
#include "models/layer_kinds.h"
#include "tools/commands/command.h"
#include "tools/commands/program_shape_of.h"
#include "tools/options/manual/device_table.h"
#include "tools/options/manual/manual_page.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

void write_page(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = folder + "/" + name + ".1";
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw io::CannotCreateError("cannot write " + path);
}

}  // namespace

int manual_command(const Arguments& arguments) {
  CLI::App app("Writes the manual pages of this program, engine.1 and one for each command.",
               "engine manual");
  std::string folder, date;
  bool layers = false, devices = false;
  CLI::Option* dir = app.add_option("DIR", folder, "existing folder for the pages");
  app.add_flag("--layers", layers, "print the table of layers of docs/toml.md instead")
      ->excludes(dir);
  app.add_flag("--devices", devices, "print the table of options of docs/gpu.md instead")
      ->excludes(dir);
  app.add_option("--date", date, "date in the pages (default: today)")->type_name("YYYY-MM-DD");
  if (!parse(app, arguments)) return kExitOk;
  if (layers) {
    std::fputs(models::layer_kinds_table().c_str(), stdout);
    return kExitOk;
  }
  if (devices) {
    std::fputs(device_table().c_str(), stdout);
    return kExitOk;
  }
  if (folder.empty()) throw UsageError("DIR is required (engine manual --help)");
  if (date.empty()) date = base::utc_text(base::unix_us()).substr(0, 10);
  if (!std::filesystem::is_directory(folder))
    throw io::CannotCreateError(folder + " is no folder to write manual pages to");
  const ProgramShape program = shape_of_program();
  write_page(folder, "engine", overview_page(program, date));
  for (const ProgramCommand& command : program.commands)
    write_page(folder, page_name(command.name), manual_page(program, command, date));
  return kExitOk;
}

}  // namespace tools
