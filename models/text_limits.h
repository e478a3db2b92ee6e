// Describes the texts that a model takes without data that state them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace models {

struct TextLimits {
  std::int64_t positions = 0;  // the positions that have weights; 0: any number of them is rotated
  std::int64_t window = 0;     // the positions that attention sees; 0: all
};

// Returns those of a text model of Hugging Face, by its layer list `definition`, or by the folder
// `name` if that is ""; nullopt for another model. Throws engine::ModelError.
std::optional<TextLimits> text_limits(const std::string& name, const std::string& definition);

struct TextDefaults {
  std::int64_t context = 0, vocabulary = 0;
};
// Returns the sizes of a text model without data, by its layer list or by its name; nullopt for a
// model that does not read token ids. Throws engine::ModelError.
std::optional<TextDefaults> text_defaults(const std::string& name, const std::string& definition);

}  // namespace models
