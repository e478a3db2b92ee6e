// Extends kept texts, or runs a padded sample through an inference.
#include "models/next_token.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace models {
namespace {

// Positions of a prompt that are computed at once on the CPU. A device computes all of them, by its
// kernels for whole samples.
constexpr std::int64_t kChunk = 64;

const engine::Graph& checked(const engine::Graph& graph) {
  const engine::Graph::Node& input = graph.nodes().at(0);
  const engine::Shape& logits = graph.nodes().at(static_cast<std::size_t>(graph.logits())).shape;
  if (input.layer || input.dtype != engine::DType::kI32 || input.shape.rank() != 1 ||
      logits.rank() != 2 || logits[0] != input.shape[0])
    throw engine::ModelError(
        "expected a model of text, from token ids [context] to logits [context, vocabulary], got "
        "one from " +
        input.shape.to_string() + " to " + logits.to_string());
  return graph;
}

std::int64_t checked(std::int64_t texts) {
  engine::require(texts >= 1 && texts <= NextToken::kMaxTexts,
                  "the number of texts is out of range");
  return texts;
}

bool on_cpu(const engine::InferenceOptions& options) {
  return options.device.kind == engine::Device::Kind::kCpu;
}

bool can_extend(const engine::Graph& graph, const engine::InferenceOptions& options) {
  return (!on_cpu(options) || options.products == engine::Products::kF32) &&
         engine::extends_texts(graph);
}

// `positions`, of each of `texts`: as in InferenceOptions; both 0 for whole samples.
engine::InferenceOptions completed(engine::InferenceOptions options,
                                   const engine::ModelState& state, std::int64_t positions,
                                   std::int64_t texts) {
  options.batch = 1;
  if (on_cpu(options) || !engine::is_half(options.dtype))
    options.dtype = state.parameters.values.dtype();
  options.positions = std::max(positions, texts);
  options.texts = texts;
  return options;
}

}  // namespace

NextToken::NextToken(const engine::Graph& graph, engine::ModelState& state,
                     engine::ThreadPool& threads, const engine::InferenceOptions& options,
                     std::int64_t texts)
    : context_(checked(graph).nodes()[0].shape[0]),
      vocabulary_(graph.nodes()[static_cast<std::size_t>(graph.logits())].shape[1]),
      texts_(checked(texts)),
      keeps_positions_(can_extend(graph, options)),
      positions_(on_cpu(options) ? std::min(kChunk, context_) : context_),
      inference_(graph, state, threads,
                 keeps_positions_ ? completed(options, state, positions_, texts)
                                  : completed(options, state, 0, 0)) {
  inference_.load();
  if (keeps_positions_) {
    kept_.resize(static_cast<std::size_t>(texts));
    return;
  }
  padded_.resize(static_cast<std::size_t>(context_));
  whole_logits_.resize(static_cast<std::size_t>(texts * vocabulary_));
}

NextToken::~NextToken() = default;

std::span<const double> NextToken::logits_after(Tokens tokens) {
  compute({&tokens, 1});
  return logits_of(0);
}

std::span<const double> NextToken::logits_of(std::size_t text) const {
  const auto width = static_cast<std::size_t>(vocabulary_);
  engine::require((text + 1) * width <= logits_.size(), "the last call had this text");
  return logits_.subspan(text * width, width);
}

void NextToken::compute(std::span<const Tokens> texts) {
  engine::require(std::ssize(texts) <= texts_, "there are more texts than there is memory for");
  std::vector<Tokens> windows;
  for (Tokens tokens : texts) {
    if (tokens.empty()) throw engine::InputError("there is no token for another to follow");
    tokens = tokens.last(std::min(tokens.size(), static_cast<std::size_t>(context_)));
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= vocabulary_)
        throw engine::InputError("token " + std::to_string(token) +
                                 " is not in the vocabulary of " + std::to_string(vocabulary_) +
                                 " tokens");
    windows.push_back(tokens);
  }
  for (std::size_t i = 0; i < windows.size(); ++i)
    keeps_positions_ ? compute_first(i, windows[i]) : compute_whole(i, windows[i]);
  if (keeps_positions_) compute_last(windows);
}

void NextToken::compute_whole(std::size_t text, Tokens tokens) {
  std::fill(std::copy(tokens.begin(), tokens.end(), padded_.begin()), padded_.end(), 0);
  static constexpr std::int64_t kId = 0;
  inference_.predict(
      {.count = 1, .samples = {}, .tokens = padded_, .labels = {}, .sample_ids = {&kId, 1}});
  std::ranges::copy(inference_.logits_of(std::ssize(tokens) - 1),
                    whole_logits_.begin() + static_cast<std::int64_t>(text) * vocabulary_);
  logits_ = std::span(whole_logits_).first((text + 1) * static_cast<std::size_t>(vocabulary_));
}

// Computes all positions but the last that are not kept.
void NextToken::compute_first(std::size_t text, Tokens tokens) {
  std::vector<std::int32_t>& kept = kept_[text];
  const Tokens first = tokens.first(tokens.size() - 1);
  kept.erase(std::ranges::mismatch(kept, first).in1, kept.end());
  while (kept.size() < first.size()) {
    const std::int64_t earlier = std::ssize(kept);
    const Tokens next = first.subspan(
        kept.size(), std::min(static_cast<std::size_t>(positions_), first.size() - kept.size()));
    inference_.extend({.tokens = next,
                       .positions = std::ssize(next),
                       .first_text = static_cast<std::int64_t>(text),
                       .earlier = {&earlier, 1},
                       .logits = false});
    kept.insert(kept.end(), next.begin(), next.end());
  }
}

// Computes the last position of all texts at once.
void NextToken::compute_last(std::span<const Tokens> texts) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> earlier;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back(texts[i].back());
    earlier.push_back(std::ssize(kept_[i]));
  }
  inference_.extend({.tokens = tokens, .positions = 1, .first_text = 0, .earlier = earlier});
  logits_ = inference_.logits();
  for (std::size_t i = 0; i < texts.size(); ++i) kept_[i].push_back(tokens[i]);
}

}  // namespace models
