// Implements `engine verify`: compares models. Prints names of differing tensors on stdout, a
// summary on stderr.
#include <glob.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "io/base/text/escape_text.h"
#include "io/interchange/array_files.h"
#include "io/interchange/compare/compare_arrays.h"
#include "tools/commands/command.h"
#include "tools/folder/run_reference.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/console_output.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/text/verify_report.h"

namespace tools {
namespace {

struct VerifyOptions {
  std::vector<std::string> paths, renames;
  io::CompareOptions compare;
  std::string only = "model", format = "names";
  std::int64_t most = 0;
  bool quiet = false, summary = false;
};

void declare(CLI::App& app, VerifyOptions& o) {
  app.add_option("FILES", o.paths, "two or more files; quoted globs are expanded")
      ->required()
      ->expected(1, 100'000)
      ->type_name("A B [C...]");
  io::Tolerance& t = o.compare.tolerance;
  app.add_option("--rtol", t.relative, "relative tolerance: equal within F * |b|")
      ->type_name("F")
      ->transform(number_from(0));
  app.add_option("--atol", t.absolute, "absolute tolerance: equal within F")
      ->type_name("F")
      ->transform(number_from(0));
  app.add_option("--ulp", t.ulp, "equal within N representable numbers")
      ->type_name("N")
      ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_option("--only", o.only,
                 "params, buffers, optimizer or all (default: parameters and buffers)")
      ->check(CLI::IsMember({"params", "buffers", "optimizer", "all"}));
  const auto list = [&app](const char* flag, std::vector<std::string>& values, const char* help,
                           const char* type) {
    app.add_option(flag, values, help)
        ->type_name(type)
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false);
  };
  list("--ignore", o.compare.ignore,
       "ignore names that match this pattern (* and ?); may be repeated", "GLOB");
  list("--map", o.renames, "rename OLD to NEW, and OLD.x to NEW.x; may be repeated", "OLD=NEW");
  list("--strip-prefix", o.compare.strip_prefix,
       "remove this prefix from names, e.g. module.; may be repeated", "P");
  app.add_option("--format", o.format, "names, table or json")
      ->check(CLI::IsMember({"names", "table", "json"}))
      ->default_str("names");
  app.add_option("--max", o.most, "show at most N differences")
      ->type_name("N")
      ->transform(whole_number(0, kMaxCount));
  app.add_flag("--summary", o.summary, "print only the summary");
  app.add_flag("-q,--quiet", o.quiet, "print nothing, only set the exit code");
  app.footer(
      "Formats are detected by content. Files are read in blocks, so memory use does not depend on "
      "their size.\n"
      "Missing or extra tensors and other shapes or dtypes always count as different.\n"
      "Without tolerances the comparison is bit by bit: a NaN equals the same NaN, -0 differs from "
      "+0.\n"
      "Exit status: 0 same, 1 different, 2 error (unreadable, corrupt, not a checkpoint).");
}

std::vector<io::Section> sections(const std::string& only) {
  using io::Section;
  if (only == "params") return {Section::kParameter};
  if (only == "buffers") return {Section::kBuffer};
  if (only == "optimizer") return {Section::kOptimizer};
  if (only == "all")
    return {Section::kParameter, Section::kBuffer,    Section::kOptimizer,
            Section::kAveraging, Section::kRankState, Section::kAverage};
  return {Section::kParameter, Section::kBuffer};
}

std::vector<std::pair<std::string, std::string>> renames(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--map '" + text + "': expected OLD=NEW");
    pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

// An existing path is used unchanged; otherwise a pattern is expanded to all matching files.
std::vector<std::string> expanded(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code unknown;
    if (path.find_first_of("*?[") == std::string::npos || std::filesystem::exists(path, unknown)) {
      files.push_back(path);
      continue;
    }
    glob_t found{};
    const int status = glob(path.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
      files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    if (status != 0) throw UsageError("no file matches '" + path + "'");
  }
  if (files.size() < 2)
    throw UsageError("expected two or more files to compare, found " +
                     std::to_string(files.size()) + " (engine verify --help)");
  return files;
}

// For a run, opens the newest checkpoint and prints a notice; `path` becomes that file.
std::unique_ptr<io::ArraySource> open_to_compare(std::string& path, bool quiet) {
  std::string file;
  auto arrays = read_checkpoint(path, CheckpointChoice::kNewest, [&](const std::string& chosen) {
    file = chosen;
    return io::open_arrays(chosen);
  });
  if (const std::string taken = checkpoint_choice_text(path, CheckpointChoice::kNewest, file);
      !taken.empty() && !quiet)
    std::fprintf(stderr, "verify: %s\n", base::escape_text(taken).c_str());
  path = file;
  return arrays;
}

io::Comparison compare(std::vector<std::string>& paths, const io::CompareOptions& options,
                       bool quiet) {
  std::vector<std::unique_ptr<io::ArraySource>> files;
  std::vector<io::ArraySource*> views;
  for (std::string& path : paths) {
    files.push_back(open_to_compare(path, quiet));
    views.push_back(files.back().get());
  }
  return io::compare_arrays(views, options);
}

}  // namespace

int verify_command(const Arguments& arguments) {
  CLI::App app(
      "Compares models (.ckpt, .safetensors, .npz, .pth, mixed) and prints the names of differing "
      "tensors in model order.",
      "engine verify");
  VerifyOptions o;
  declare(app, o);
  if (!parse(app, arguments)) return kExitOk;
  o.compare.sections = sections(o.only);
  o.compare.rename = renames(o.renames);
  if (std::isnan(o.compare.tolerance.relative) || std::isnan(o.compare.tolerance.absolute))
    throw UsageError("a tolerance is not a number");
  io::Comparison comparison;
  try {
    o.paths = expanded(o.paths);
    comparison = compare(o.paths, o.compare, o.quiet);
    if (comparison.compared == 0)
      throw io::DataError("nothing to compare: no tensor in " + o.paths.front() + " or the others" +
                          (o.only == "model" ? "" : " (--only " + o.only + ")"));
  } catch (const std::exception& error) {  // any error: no verdict
    if (!o.quiet) std::fprintf(stderr, "engine: error: %s\n", text_of(error).c_str());
    return kExitUsage;
  }
  if (!o.quiet && !o.summary) {
    const std::string text = differences_text(comparison, o.format, o.most, o.paths);
    std::fwrite(text.data(), 1, text.size(), stdout);
    flush_standard_output();
  }
  if (!o.quiet) {
    std::fprintf(stderr, "verify: %s\n", verdict(comparison).c_str());
    if (const std::string text = not_finite_text(comparison, o.paths); !text.empty())
      std::fprintf(stderr, "verify: note: %s\n", text.c_str());
  }
  return comparison.differences.empty() ? kExitOk : kExitDifferent;
}

}  // namespace tools
