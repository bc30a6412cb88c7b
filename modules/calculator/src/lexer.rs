//! Text → tokens, each with the character it begins at.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};

use crate::fault::Fault;

/// Longer input is a program, not an expression; also bounds the tokens and thus the work.
const MAX_CHARACTERS: usize = 20_000;

/// `1e10000` is a number somebody may mean; beyond that the digits alone fill a page.
const MAX_EXPONENT: u32 = 10_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Number(BigRational),
    Name(String),
    Plus,
    Minus,
    Times,
    Divide,
    Remainder,
    Power,
    Factorial,
    Open,
    Close,
    Comma,
    End,
}

impl Token {
    /// How an error message names it.
    pub fn describe(&self) -> String {
        let symbol = match self {
            Self::Number(_) => return "a number".to_owned(),
            Self::Name(name) => return format!("`{name}`"),
            Self::End => return "the end of the expression".to_owned(),
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Power => "^",
            Self::Factorial => "!",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
        };
        format!("`{symbol}`")
    }
}

/// The tokens of `text` with their positions, [`Token::End`] last.
pub fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Fault> {
    let mut lexer = Lexer {
        characters: text.chars().collect(),
        next: 0,
    };
    if lexer.characters.len() > MAX_CHARACTERS {
        let message = format!("the expression is longer than {MAX_CHARACTERS} characters");
        return Err(Fault::new(MAX_CHARACTERS, message));
    }
    let mut tokens = Vec::new();
    loop {
        let (token, position) = lexer.token()?;
        let end = token == Token::End;
        tokens.push((token, position));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    characters: Vec<char>,
    next: usize,
}

impl Lexer {
    fn token(&mut self) -> Result<(Token, usize), Fault> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next += 1;
        }
        let position = self.next + 1;
        let Some(character) = self.peek() else {
            return Ok((Token::End, position));
        };
        if character.is_ascii_digit() || character == '.' {
            return Ok((Token::Number(self.number(position)?), position));
        }
        if character.is_alphabetic() {
            return Ok((Token::Name(self.name()), position));
        }
        self.next += 1;
        let token = match character {
            '+' => Token::Plus,
            // Models copy typeset signs from the text they read.
            '-' | '−' | '–' => Token::Minus,
            '*' if self.take('*') => Token::Power,
            '*' | '×' | '·' | '⋅' => Token::Times,
            '/' | '÷' => Token::Divide,
            '%' => Token::Remainder,
            '^' => Token::Power,
            '!' => Token::Factorial,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            other => {
                let message = format!(
                    "`{other}` has no meaning here; use numbers, + - * / % ^ ! ( ) and functions"
                );
                return Err(Fault::new(position, message));
            }
        };
        Ok((token, position))
    }

    /// `12`, `1_000`, `1.25`, `.5`, `6.02e23`: exact, decimals as fractions of powers of ten.
    fn number(&mut self, position: usize) -> Result<BigRational, Fault> {
        let mut digits = self.digits();
        let mut scale = 0;
        if self.take('.') {
            let fraction = self.digits();
            scale = fraction.len();
            digits.push_str(&fraction);
        }
        let value = digits
            .parse::<BigInt>()
            .map_err(|_| Fault::new(position, "expected digits before or after the point"))?;
        let value = BigRational::new(value, power_of_ten(scale as u32));
        match self.exponent(position)? {
            Some((false, exponent)) => Ok(value * power_of_ten(exponent)),
            Some((true, exponent)) => Ok(value / power_of_ten(exponent)),
            None => Ok(value),
        }
    }

    /// The exponent of `6.02e23` as (is negative, size), if there is one.
    fn exponent(&mut self, position: usize) -> Result<Option<(bool, u32)>, Fault> {
        let start = self.next;
        if !(self.take('e') || self.take('E')) {
            return Ok(None);
        }
        let negative = self.take('-') || self.take('−');
        if !negative {
            self.take('+');
        }
        let digits = self.digits();
        if digits.is_empty() {
            // Not an exponent: `2e` is a number followed by a name, which the parser explains.
            self.next = start;
            return Ok(None);
        }
        match digits.parse() {
            Ok(exponent) if exponent <= MAX_EXPONENT => Ok(Some((negative, exponent))),
            _ => {
                let message = format!("the exponent of this number is above {MAX_EXPONENT}");
                Err(Fault::new(position, message))
            }
        }
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(character) = self.peek() {
            match character {
                '0'..='9' => digits.push(character),
                '_' => {}
                _ => break,
            }
            self.next += 1;
        }
        digits
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(character) = self.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
            name.push(character);
            self.next += 1;
        }
        name
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.next).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }
}

/// 10 to a small power.
pub fn power_of_ten(exponent: u32) -> BigInt {
    if exponent.is_zero() {
        BigInt::one()
    } else {
        BigInt::from(10).pow(exponent)
    }
}
