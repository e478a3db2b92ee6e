// Implements `engine sample`: generates text with a trained text model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/train/saving/weights.h"
#include "io/base/files/open_file.h"
#include "io/base/text/escape_text.h"
#include "models/next_token.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/text_coding.h"
#include "tools/commands/predict/text_generation.h"
#include "tools/commands/predict/text_model.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/saved_weights.h"

namespace tools {
namespace {

struct SampleOptions {
  std::string path, prompt_file, prompt_ids, tokenizer;
  std::vector<std::string> prompts;
  engine::AverageKind weights = engine::AverageKind::kNone;
  std::int64_t count = 200, threads = 0;
  bool ignore_end = false, rate = false;
  std::string device = "auto", weight_dtype = "f32";
  SamplingOptions sampling;
};

// Texts that are computed at once. Each weight is read once for all of them.
constexpr std::size_t kTextsAtOnce = 8;
constexpr std::uint64_t kMaxPromptBytes = std::uint64_t{64} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// A prompt is free text: it may begin with a dash and contain typographic marks, which are rejected
// elsewhere as mistakes. So the parser does not see it.
std::vector<std::string> take_prompts(Arguments& arguments) {
  std::vector<std::string> prompts;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--prompt=")) {
      prompts.push_back(arguments[i].substr(9));
      arguments[i] = "--prompt=x";
    } else if (arguments[i] == "--prompt" && i + 1 < arguments.size()) {
      prompts.push_back(arguments[++i]);
      arguments[i] = "x";
    }
  }
  return prompts;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(io::read_small_file(path, kMaxPromptBytes));
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (lines.empty() && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    lines.push_back(std::move(line));
    if (lines.back().empty())
      throw io::DataError(path + ":" + std::to_string(lines.size()) +
                          ": the line is empty; expected a prompt of at least one character");
  }
  if (lines.empty())
    throw io::DataError(path + ": found no prompt, expected a line for each of them");
  return lines;
}

void print_at_once(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) throw io::Error("cannot write to the standard output");
}

// Prints token ids, as they come.
void print_ids(models::NextToken& next, const GenerationOptions& options,
               const std::string& prompt) {
  std::vector<std::int32_t> ids = parse_ids(prompt, next.vocabulary());
  print_at_once(prompt);
  generate(next, options, {std::move(ids)},
           [](std::size_t, std::int32_t token) { print_at_once("," + std::to_string(token)); });
  print_at_once("\n");
}

// Prints a text as it comes.
void print_text(models::NextToken& next, const GenerationOptions& options, const TextCoding& coding,
                const std::string& prompt) {
  const TextCoding::Writer writer = coding.writer();
  print_at_once(prompt);
  generate(next, options, {coding.ids(prompt)},
           [&](std::size_t, std::int32_t token) { print_at_once(writer.add(token)); });
  print_at_once(writer.finish() + "\n");
}

// Prints several texts, in their order, when they are complete.
void print_texts(models::NextToken& next, GenerationOptions options, const TextCoding& coding,
                 const std::vector<std::string>& prompts) {
  for (std::size_t first = 0; first < prompts.size(); first += kTextsAtOnce) {
    const std::size_t count = std::min(kTextsAtOnce, prompts.size() - first);
    std::vector<std::string> texts;
    std::vector<std::vector<std::int32_t>> ids;
    std::vector<TextCoding::Writer> writers;
    for (std::size_t i = 0; i < count; ++i) {
      texts.push_back(prompts[first + i]);
      ids.push_back(coding.ids(texts[i]));
      writers.push_back(coding.writer());
    }
    generate(next, options, std::move(ids), [&](std::size_t text, std::int32_t token) {
      texts[text] += writers[text].add(token);
    });
    for (std::size_t i = 0; i < count; ++i)
      print_at_once((first + i > 0 ? "---\n" : "") + texts[i] + writers[i].finish() + "\n");
    options.sampling.seed += count;
  }
}

void add_sampling_options(CLI::App& app, SampleOptions& o) {
  app.add_option("-n,--count", o.count, "number of tokens (characters) to add, at most")
      ->type_name("N")
      ->transform(whole_number(0, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--temperature", o.sampling.temperature,
                 "below 1: more predictable; above 1: more random; 0: most likely token")
      ->type_name("F")
      ->transform(number_from(0))
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "sample from the K most likely tokens; 0: all")
      ->type_name("K")
      ->transform(whole_number(0, kMaxCount))
      ->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p,
                 "sample from the most likely tokens of total probability P")
      ->type_name("P")
      ->transform(number_from(0, 1))
      ->capture_default_str();
  app.add_option("--seed", o.sampling.seed, "random seed; text i of several: S + i, from 0")
      ->type_name("S")
      ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
}

void add_options(CLI::App& app, SampleOptions& o) {
  app.add_option("RUN|CKPT|DIR", o.path,
                 "run's folder (its best checkpoint, else the newest), a text model's "
                 "checkpoint, or a folder of Hugging Face")
      ->required();
  CLI::Option* prompt = app.add_option("--prompt", o.prompts, "text to continue; may be repeated")
                            ->type_name("PROMPT")
                            ->expected(1)
                            ->take_all()
                            ->allow_extra_args(false);
  CLI::Option* file =
      app.add_option("--prompts", o.prompt_file, "file of texts to continue, one per line")
          ->type_name("FILE")
          ->excludes(prompt);
  app.add_option("--prompt-ids", o.prompt_ids, "token ids to continue, as 1,2,3; prints ids")
      ->type_name("IDS")
      ->excludes(prompt)
      ->excludes(file);
  app.add_option("--tokenizer", o.tokenizer,
                 "tokenizer.json, or a folder with it, in place of the checkpoint's")
      ->type_name("PATH");
  app.add_flag("--rate", o.rate, "print the tokens per second on stderr");
  app.add_flag("--ignore-end", o.ignore_end, "continue after the token that ends a text");
  add_sampling_options(app, o);
  add_weights_option(app, o.weights);
  app.add_option("--weight-dtype", o.weight_dtype,
                 "bf16: weights rounded to 16 bits, faster on CPUs")
      ->type_name("f32|bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "number of threads (0: one per core)")
      ->type_name("N")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--device", o.device, "cuda: a GPU; auto: cuda if there is a GPU, else cpu")
      ->type_name("auto|cpu|cuda|cuda:N")
      ->capture_default_str();
  app.footer(
      "Prints the prompt and its continuation. Prompts of published models also get the tokens "
      "that their tokenizer adds, e.g. <|begin_of_text|>. The model sees only the last tokens that "
      "fit into its context; published models that rotate positions see all. Several texts are "
      "separated by a line ---.");
}

DeviceRequest device_request(const SampleOptions& o) {
  const std::optional<DeviceName> name = parse_device_name(o.device);
  if (!name)
    throw UsageError("--device '" + base::escape_text(o.device) +
                     "': expected one of auto, cpu, cuda, cuda:N");
  return {.device = *name};
}

void check_options(SampleOptions& o) {
  if (!o.prompt_file.empty()) o.prompts = lines_of(o.prompt_file);
  if (o.prompts.empty() && o.prompt_ids.empty())
    throw UsageError("there is nothing to continue: give --prompt, --prompts or --prompt-ids");
  for (const std::string& prompt : o.prompts)
    if (prompt.empty()) throw UsageError("--prompt is empty: at least one character is needed");
  if (!std::isfinite(o.sampling.temperature))
    throw UsageError("--temperature must be a finite number, 0 or more");
}

// Chooses the device, and the storage of weights for it.
engine::InferenceOptions inference_options(const SampleOptions& o, engine::DType dtype) {
  DeviceRequest request = device_request(o);
  const bool rounds = o.weight_dtype == "bf16";
  if (rounds) request.cpu_only = "--weight-dtype bf16";
  if (rounds && dtype == engine::DType::kF64)
    throw io::ConfigError(o.path +
                          ": --weight-dtype bf16 needs a model in float32, and this one is in "
                          "float64; leave the option out");
  return {.device = choose_device(request).device,
          .packed = rounds ? engine::DType::kBF16 : engine::DType::kF32};
}

// A token that the model lacks would end the output after the prompt.
void check_size(const SampleOptions& o, const TextCoding& coding, std::int64_t vocabulary) {
  if (!o.prompt_ids.empty() || coding.size() <= vocabulary) return;
  throw io::ConfigError((o.tokenizer.empty() ? o.path + ": its tokenizer" : o.tokenizer) + " has " +
                        std::to_string(coding.size()) + " tokens; the model's vocabulary has " +
                        std::to_string(vocabulary));
}

void check_coding(const SampleOptions& o, const TextCoding& coding,
                  const io::Checkpoint& checkpoint) {
  if (!o.prompt_ids.empty() || coding.has_text()) return;
  throw io::ConfigError(o.path + ": " + model_text(checkpoint) +
                        " has no tokenizer: name one with --tokenizer FILE, or give token ids, "
                        "--prompt-ids 1,2,3");
}

// In tokens.
std::int64_t longest_prompt(const SampleOptions& o, const TextCoding& coding) {
  std::int64_t longest = std::ranges::count(o.prompt_ids, ',') + 1;
  if (!coding.has_text()) return longest;  // an error soon
  for (const std::string& prompt : o.prompts)
    longest = std::max(longest, std::ssize(coding.ids(prompt)));
  return longest;
}

GenerationOptions generation_options(const SampleOptions& o, const TextCoding& coding,
                                     std::int64_t vocabulary) {
  const std::int64_t known = coding.has_text() ? coding.size() : vocabulary;
  return {.count = o.count,
          .sampling = o.sampling,
          .ends = o.ignore_end ? std::vector<std::int32_t>{} : coding.ends(),
          .size = std::min(known, vocabulary)};
}

void print(const SampleOptions& o, const GenerationOptions& options, const TextCoding& coding,
           models::NextToken& next) {
  if (!o.prompt_ids.empty()) return print_ids(next, options, o.prompt_ids);
  if (o.prompts.size() == 1) return print_text(next, options, coding, o.prompts[0]);
  print_texts(next, options, coding, o.prompts);
}

void print_rate(const GenerationRate& rate) {
  if (rate.tokens == 0)
    return static_cast<void>(
        std::fputs("sample: no rate: expected two tokens; raise -n\n", stderr));
  std::fprintf(stderr, "sample: %lld tokens after the first in %.3f s, %.1f tokens/s\n",
               static_cast<long long>(rate.tokens), rate.seconds,
               static_cast<double>(rate.tokens) / rate.seconds);
}

}  // namespace

int sample_command(const Arguments& arguments) {
  CLI::App app("Continues texts with a model trained on text or tokens.", "engine sample");
  SampleOptions o;
  add_options(app, o);
  Arguments plain = arguments;
  std::vector<std::string> prompts = take_prompts(plain);
  if (!parse(app, plain)) return kExitOk;
  o.prompts = std::move(prompts);
  check_options(o);
  device_request(o);

  const std::string given = o.path;
  io::Checkpoint checkpoint =
      read_checkpoint(given, choice_for(o.weights), [&](const std::string& file) {
        o.path = file;
        return load_text_model(file);
      });
  const TextCoding coding(checkpoint, o.path, o.tokenizer, /*ids_alone=*/!o.prompt_ids.empty());
  if (!coding.fault().empty())
    print_notice("warning: " + coding.fault() + "; only the model's settings end a text");
  const auto [graph, dtype] =
      text_graph(checkpoint, o.path, {.prompt = longest_prompt(o, coding), .added = o.count});
  check_coding(o, coding, checkpoint);
  engine::ModelState state = engine::ModelState::allocate(graph, dtype, {}, /*gradients=*/false);
  state.initialize(graph, 0, engine::ModelState::nothing);
  choose_weights(o.weights, o.path, checkpoint);
  engine::import_state(checkpoint.arrays, o.path, /*exact=*/false, state);
  check_threads(static_cast<int>(std::min<std::int64_t>(o.threads, 1 << 20)));
  engine::ThreadPool pool(o.threads > 0 ? static_cast<int>(o.threads) : default_threads(1));
  models::NextToken next(graph, state, pool, inference_options(o, dtype),
                         std::ssize(o.prompts) > 1
                             ? static_cast<std::int64_t>(std::min(o.prompts.size(), kTextsAtOnce))
                             : 1);
  check_size(o, coding, next.vocabulary());
  GenerationRate rate;
  GenerationOptions options = generation_options(o, coding, next.vocabulary());
  options.rate = &rate;
  print(o, options, coding, next);
  if (o.rate) print_rate(rate);
  return kExitOk;
}

}  // namespace tools
