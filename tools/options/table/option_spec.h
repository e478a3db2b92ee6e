// Describes an option of `engine train` completely, as one row. The command line, ENGINE_NAME,
// configuration files, help, manual pages, completion, the record of a run, the comparison of a
// resumed run and the agreement of ranks are derived from rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tools {

struct RunConfig;

// Describes why a value is rejected.
struct ValueFault {
  std::string expected;   // e.g. "a number above 0"
  std::string hint = {};  // e.g. ": did you mean 'flip'?"
};

// The format of an option's value, and the part of a RunConfig that stores it. option_fields.h has
// the functions that make fields.
struct OptionField {
  enum class Type {
    kString,
    kInteger,
    kReal,
    kFlag,  // --x, --no-x; text "true" or "false"
    kChoice,
    kInterval,  // "2e" epochs, "500s" or "500" steps
    kList,      // integers with commas, "30,60"
    kDevices,   // numbers of devices, "0 1", "0,1" or "0-3"; "none"
  };
  Type type = Type::kString;
  std::vector<std::string> choices = {};  // kChoice: the texts
  // Checks the range of a canonical text (not empty) and stores the value.
  std::function<std::optional<ValueFault>(RunConfig&, const std::string& text)> store = {};
  // Returns the stored value as text; "": unset. Empty for values that are text of several parts.
  std::function<std::string(RunConfig&)> text = {};
};

// A condition on the value of one option.
struct Condition {
  enum class Kind {
    kOneOf,  // the value is, or lists, one of `choices`
    kOn,     // neither empty nor false, none, off or 0
    kOff,
    kGiven,  // any text
  };
  std::string option;  // "": the option of the row itself
  Kind kind = Kind::kGiven;
  std::string choices = {};  // "params|slowmo"
};
// If the option's own value fulfills `own`, one of `any_of` must hold, whatever its source.
struct Demand {
  Condition own;
  std::vector<Condition> any_of;
  std::string text;  // ends the message "--resume auto requires "
};

// Values of an option that devices of one kind reject, or with which they differ.
struct DeviceLimit {
  enum class Kind { kCpu, kCuda };
  Kind kind;
  Condition own;     // on the option's value
  bool rejected;     // the run needs the other kind of device
  std::string text;  // why, or how the device differs: a cell of docs/gpu.md
};

struct OptionSpec {
  using Type = OptionField::Type;
  enum class Agreement {
    kEqual,     // the same value on all ranks
    kFree,      // may differ between ranks
    kPresence,  // set on all ranks or on none
  };
  // The effect of a changed value when a run is resumed.
  enum class OnResume {
    kReport,    // the change is allowed and reported
    kReject,    // a different experiment: only with --allow-change
    kPlace,     // a location of the data, whose content is compared instead
    kOneStart,  // belongs to a single start: a run does not store it
  };
  // Describes if a checkpoint's arrays fit the model that another value makes.
  enum class Arrays { kSame, kMayDiffer, kDiffer };

  std::string name;        // "sync-every": --sync-every, --sync_every, ENGINE_SYNC_EVERY, a key
  std::string alias = {};  // an earlier name, which is still accepted everywhere
  OptionField field;
  std::string metavar = {};  // "K"; by default "N" or "F" for a number, and the choices
  std::optional<std::string> initial = {};  // if it differs from the structure's default; "": unset
  std::string help;                         // one line, no period
  std::string example;                      // a complete example: "--sync params --sync-every 8"
  Agreement agreement = Agreement::kEqual;  // the entry of agreed_settings()
  OnResume on_resume = OnResume::kReport;
  Arrays arrays = Arrays::kSame;
  // A setting that needs another choice plays no part without it (kUnusedSource), unless it
  // comes from an equally strong source: then it is an error.
  std::vector<Condition> needs = {};
  std::vector<std::string> excludes = {};  // options; the source with the higher precedence wins
  std::vector<Demand> demands = {};
  std::vector<DeviceLimit> limits = {};
  bool of_model = false;       // commands that use a trained model take it from the checkpoint
  bool of_inputs = false;      // with of_model: engine predict applies it to its own inputs
  bool shapes_coding = false;  // affects how samples are coded as numbers
  bool names_path = false;     // an empty text on the command line is an error

  // Set by the table.
  std::string group = {};          // heading in --help, optional [table] in a configuration file
  std::string default_value = {};  // as text; "": unset

  Type type() const { return field.type; }
};

}  // namespace tools
