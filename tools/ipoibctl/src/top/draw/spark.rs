// SPDX-License-Identifier: GPL-2.0

//! Sparklines: a character for each value.

/// Characters for nothing, and for each eighth of the largest value.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];

/// The last values, as many as fit, at the right end of `width`. The largest of them is as high as a line; what is not 0
/// can be seen.
pub(super) fn spark(
    values: impl ExactSizeIterator<Item = f64> + Clone,
    width: u16,
    blocks: bool,
) -> String {
    let width = usize::from(width);
    let missing = width.saturating_sub(values.len());
    let shown = values.clone().skip(values.len().saturating_sub(width));
    let largest = shown.clone().fold(0.0, f64::max);
    let characters = if blocks { BLOCKS } else { PLAIN };
    let mut text = " ".repeat(missing);
    text.extend(shown.map(|value| {
        let level = if value > 0.0 {
            (value / largest * 8.0).ceil().clamp(1.0, 8.0)
        } else {
            0.0
        };
        characters[level as usize]
    }));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_heights() {
        let of = |values: &[f64], width, blocks| spark(values.iter().copied(), width, blocks);
        assert_eq!(of(&[0.0, 1.0, 4.0, 8.0], 4, true), " ▁▄█");
        assert_eq!(of(&[0.0, 1.0, 4.0, 8.0], 6, false), "   .=#");
        assert_eq!(of(&[80.0, 0.001, 5.0], 2, true), "▁█");
        assert_eq!(of(&[0.0, 0.0], 3, true), "   ");
        assert_eq!(of(&[], 2, true), "  ");
        assert_eq!(of(&[1.0], 0, true), "");
    }
}
