// Control points of the digits, drawn by hand on a grid.
#include "io/data/readers/drawn/glyph_strokes.h"

#include <array>
#include <cstddef>

namespace io {
namespace {

using P = GlyphPoint;
constexpr bool kCurve = true, kLines = false;

// 0: a wide and a narrow ring.
constexpr P kZeroWide[] = {{0, -1},      {-.42f, -.75f}, {-.56f, 0},    {-.42f, .75f}, {0, 1},
                           {.42f, .75f}, {.56f, 0},      {.42f, -.75f}, {0, -1}};
constexpr P kZeroNarrow[] = {{.08f, -1},  {-.28f, -.6f}, {-.36f, .1f},  {-.2f, .85f}, {.1f, 1},
                             {.34f, .5f}, {.38f, -.2f},  {.22f, -.85f}, {0, -.98f}};
constexpr GlyphStroke kZeroA[] = {{kCurve, kZeroWide}};
constexpr GlyphStroke kZeroB[] = {{kCurve, kZeroNarrow}};
constexpr GlyphStyle kZero[] = {kZeroA, kZeroB};

// 1: a bar; with a flag; with flag and foot.
constexpr P kOneBar[] = {{0, -1}, {0, 0}, {0, 1}};
constexpr P kOneFlag[] = {{-.32f, -.62f}, {.06f, -1}, {.06f, 1}};
constexpr P kOneFoot[] = {{-.34f, 1}, {.42f, 1}};
constexpr GlyphStroke kOneA[] = {{kLines, kOneBar}};
constexpr GlyphStroke kOneB[] = {{kLines, kOneFlag}};
constexpr GlyphStroke kOneC[] = {{kLines, kOneFlag}, {kLines, kOneFoot}};
constexpr GlyphStyle kOne[] = {kOneA, kOneB, kOneC};

// 2: round with a straight base; with a loop at the lower left.
constexpr P kTwoArc[] = {{-.5f, -.55f}, {-.3f, -.92f}, {.08f, -1},  {.44f, -.75f},
                         {.42f, -.3f},  {.05f, .3f},   {-.5f, .98f}};
constexpr P kTwoBase[] = {{-.5f, .98f}, {.55f, .98f}};
constexpr P kTwoLoop[] = {{-.45f, -.65f}, {-.1f, -1},    {.38f, -.82f}, {.4f, -.35f}, {.02f, .35f},
                          {-.38f, .9f},   {-.55f, .75f}, {-.3f, .6f},   {.1f, .9f},   {.58f, .88f}};
constexpr GlyphStroke kTwoA[] = {{kCurve, kTwoArc}, {kLines, kTwoBase}};
constexpr GlyphStroke kTwoB[] = {{kCurve, kTwoLoop}};
constexpr GlyphStyle kTwo[] = {kTwoA, kTwoB};

// 3: two bowls; a flat top with one bowl.
constexpr P kThreeBowls[] = {{-.48f, -.75f}, {-.1f, -1},     {.36f, -.82f},
                             {.36f, -.32f},  {-.08f, -.05f}, {.42f, .18f},
                             {.46f, .7f},    {0, 1},         {-.5f, .74f}};
constexpr P kThreeTop[] = {{-.45f, -.98f}, {.45f, -.98f}, {-.05f, -.15f}};
constexpr P kThreeBowl[] = {{-.05f, -.15f}, {.38f, .02f}, {.48f, .5f}, {.15f, .97f}, {-.5f, .8f}};
constexpr GlyphStroke kThreeA[] = {{kCurve, kThreeBowls}};
constexpr GlyphStroke kThreeB[] = {{kLines, kThreeTop}, {kCurve, kThreeBowl}};
constexpr GlyphStyle kThree[] = {kThreeA, kThreeB};

// 4: closed, as printed; open, as written.
constexpr P kFourClosed[] = {{.22f, 1}, {.22f, -1}, {-.55f, .38f}, {.58f, .38f}};
constexpr P kFourLeft[] = {{-.38f, -.92f}, {-.48f, .12f}, {.52f, .12f}};
constexpr P kFourStem[] = {{.34f, -.9f}, {.24f, 1}};
constexpr GlyphStroke kFourA[] = {{kLines, kFourClosed}};
constexpr GlyphStroke kFourB[] = {{kLines, kFourLeft}, {kLines, kFourStem}};
constexpr GlyphStyle kFour[] = {kFourA, kFourB};

// 5: cap, neck and bowl; in one sweep.
constexpr P kFiveCap[] = {{.46f, -.98f}, {-.36f, -.98f}, {-.42f, -.12f}};
constexpr P kFiveBowl[] = {{-.42f, -.12f}, {.08f, -.3f}, {.48f, .05f},
                           {.44f, .65f},   {.02f, 1},    {-.5f, .8f}};
constexpr P kFiveSweep[] = {{.5f, -.92f}, {.02f, -.96f}, {-.3f, -.85f}, {-.36f, -.3f}, {.1f, -.14f},
                            {.42f, .2f},  {.36f, .78f},  {-.05f, 1},    {-.46f, .85f}};
constexpr GlyphStroke kFiveA[] = {{kLines, kFiveCap}, {kCurve, kFiveBowl}};
constexpr GlyphStroke kFiveB[] = {{kCurve, kFiveSweep}};
constexpr GlyphStyle kFive[] = {kFiveA, kFiveB};

// 6: a bent stem into a bowl; a straight stem with a small ring.
constexpr P kSixBent[] = {{.38f, -.9f}, {-.1f, -.82f}, {-.44f, -.2f}, {-.48f, .45f}, {-.15f, .98f},
                          {.34f, .85f}, {.46f, .35f},  {.1f, .02f},   {-.42f, .3f}};
constexpr P kSixStraight[] = {{.2f, -1},   {-.2f, -.4f}, {-.42f, .3f},  {-.3f, .85f}, {.08f, 1},
                              {.4f, .68f}, {.22f, .25f}, {-.15f, .25f}, {-.38f, .6f}};
constexpr GlyphStroke kSixA[] = {{kCurve, kSixBent}};
constexpr GlyphStroke kSixB[] = {{kCurve, kSixStraight}};
constexpr GlyphStyle kSix[] = {kSixA, kSixB};

// 7: plain; with a bar through the stem; with a bent stem.
constexpr P kSevenPlain[] = {{-.5f, -.98f}, {.5f, -.98f}, {-.12f, 1}};
constexpr P kSevenBar[] = {{-.3f, .02f}, {.42f, .02f}};
constexpr P kSevenTop[] = {{-.52f, -.9f}, {.48f, -.95f}};
constexpr P kSevenStem[] = {{.48f, -.95f}, {.16f, -.3f}, {-.02f, .3f}, {-.06f, 1}};
constexpr GlyphStroke kSevenA[] = {{kLines, kSevenPlain}};
constexpr GlyphStroke kSevenB[] = {{kLines, kSevenPlain}, {kLines, kSevenBar}};
constexpr GlyphStroke kSevenC[] = {{kLines, kSevenTop}, {kCurve, kSevenStem}};
constexpr GlyphStyle kSeven[] = {kSevenA, kSevenB, kSevenC};

// 8: in one stroke that crosses itself; two rings.
constexpr P kEightCross[] = {{.3f, -.75f}, {-.02f, -1},  {-.38f, -.72f}, {-.24f, -.28f},
                             {.24f, .14f}, {.44f, .62f}, {0, 1},         {-.44f, .62f},
                             {-.22f, .1f}, {.24f, -.3f}, {.34f, -.7f}};
constexpr P kEightUpper[] = {{0, -.06f},  {-.34f, -.3f}, {-.28f, -.82f}, {0, -1},
                             {.3f, -.8f}, {.34f, -.3f},  {0, -.06f}};
constexpr P kEightLower[] = {{0, -.06f}, {-.44f, .3f}, {-.38f, .82f}, {0, 1},
                             {.4f, .8f}, {.44f, .3f},  {0, -.06f}};
constexpr GlyphStroke kEightA[] = {{kCurve, kEightCross}};
constexpr GlyphStroke kEightB[] = {{kCurve, kEightUpper}, {kCurve, kEightLower}};
constexpr GlyphStyle kEight[] = {kEightA, kEightB};

// 9: a ring with a straight stem; with a bent tail.
constexpr P kNineRing[] = {{.38f, -.6f},  {.1f, -.98f}, {-.34f, -.82f}, {-.42f, -.38f},
                           {-.1f, -.04f}, {.3f, -.25f}, {.4f, -.7f}};
constexpr P kNineStem[] = {{.4f, -.75f}, {.3f, 1}};
constexpr P kNineTail[] = {{.42f, -.4f},   {.14f, -.02f}, {-.32f, -.12f}, {-.44f, -.55f},
                           {-.14f, -.97f}, {.3f, -.85f},  {.46f, -.3f},   {.38f, .5f},
                           {.05f, .97f},   {-.36f, .88f}};
constexpr GlyphStroke kNineA[] = {{kCurve, kNineRing}, {kLines, kNineStem}};
constexpr GlyphStroke kNineB[] = {{kCurve, kNineTail}};
constexpr GlyphStyle kNine[] = {kNineA, kNineB};

constexpr std::array<std::span<const GlyphStyle>, 10> kDigits = {
    kZero, kOne, kTwo, kThree, kFour, kFive, kSix, kSeven, kEight, kNine};

}  // namespace

std::span<const GlyphStyle> glyph_styles(int digit) {
  return kDigits[static_cast<std::size_t>(digit)];
}

}  // namespace io
