//! Tokens → expression tree.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = unary (("*" | "/" | "%") unary)*
//! unary   = ("-" | "+") unary | power
//! power   = postfix ("^" unary)?
//! postfix = primary "!"?
//! primary = number | name "(" sum ("," sum)* ")" | "(" sum ")"
//! ```
//! Chains of one level are lists in the tree, not nested pairs: its depth is the depth of nesting,
//! which [`MAX_DEPTH`] bounds, and so evaluation can recurse.

use num_rational::BigRational;

use crate::fault::Fault;
use crate::functions::Function;
use crate::lexer::{Token, tokens};

/// Six frames a level must fit the stack of an instance many times over.
const MAX_DEPTH: usize = 100;

#[derive(Debug)]
pub enum Expression {
    Number(BigRational),
    Negate(Box<Expression>),
    /// `first`, then one step after the other from left to right. Sums and products alike.
    Chain {
        first: Box<Expression>,
        rest: Vec<Step>,
    },
    Power {
        base: Box<Expression>,
        exponent: Box<Expression>,
        position: usize,
    },
    Call {
        function: Function,
        arguments: Vec<Expression>,
        position: usize,
    },
}

/// An operator and its right operand.
#[derive(Debug)]
pub struct Step {
    pub operator: Operator,
    pub operand: Expression,
    pub position: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

pub fn parse(text: &str) -> Result<Expression, Fault> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
    };
    let expression = parser.sum()?;
    match parser.peek() {
        (Token::End, _) => Ok(expression),
        (Token::Close, position) => Err(Fault::new(
            position,
            "this `)` closes nothing; remove it or open it before",
        )),
        (Token::Comma, position) => Err(Fault::new(
            position,
            "a comma only separates function arguments; write 1000 and not 1,000",
        )),
        (Token::Open | Token::Number(_) | Token::Name(_), position) => Err(Fault::new(
            position,
            "expected an operator; multiplication needs a `*`",
        )),
        (token, position) => Err(Fault::new(
            position,
            format!("expected an operator, found {}", token.describe()),
        )),
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn sum(&mut self) -> Result<Expression, Fault> {
        self.chain(Self::product, |token| match token {
            Token::Plus => Some(Operator::Add),
            Token::Minus => Some(Operator::Subtract),
            _ => None,
        })
    }

    fn product(&mut self) -> Result<Expression, Fault> {
        self.chain(Self::unary, |token| match token {
            Token::Times => Some(Operator::Multiply),
            Token::Divide => Some(Operator::Divide),
            Token::Remainder => Some(Operator::Remainder),
            _ => None,
        })
    }

    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Expression, Fault>,
        operator: fn(&Token) -> Option<Operator>,
    ) -> Result<Expression, Fault> {
        let first = operand(self)?;
        let mut rest = Vec::new();
        loop {
            let (token, position) = self.peek();
            let Some(operator) = operator(&token) else {
                break;
            };
            self.next += 1;
            rest.push(Step {
                operator,
                operand: operand(self)?,
                position,
            });
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expression::Chain {
            first: Box::new(first),
            rest,
        })
    }

    /// Every way to nest passes here, so the depth is counted here.
    fn unary(&mut self) -> Result<Expression, Fault> {
        let (token, position) = self.peek();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} deep; split the calculation");
            return Err(Fault::new(position, message));
        }
        let expression = match token {
            Token::Minus => {
                self.next += 1;
                Expression::Negate(Box::new(self.unary()?))
            }
            Token::Plus => {
                self.next += 1;
                self.unary()?
            }
            _ => self.power()?,
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn power(&mut self) -> Result<Expression, Fault> {
        let base = self.postfix()?;
        let (Token::Power, position) = self.peek() else {
            return Ok(base);
        };
        self.next += 1;
        let exponent = Box::new(self.unary()?);
        Ok(Expression::Power {
            base: Box::new(base),
            exponent,
            position,
        })
    }

    fn postfix(&mut self) -> Result<Expression, Fault> {
        let operand = self.primary()?;
        let (Token::Factorial, position) = self.peek() else {
            return Ok(operand);
        };
        self.next += 1;
        if let (Token::Factorial, second) = self.peek() {
            let message = "`!!` is ambiguous; for the factorial of a factorial write (n!)!";
            return Err(Fault::new(second, message));
        }
        Ok(Expression::Call {
            function: Function::Factorial,
            arguments: vec![operand],
            position,
        })
    }

    fn primary(&mut self) -> Result<Expression, Fault> {
        let (token, position) = self.peek();
        self.next += 1;
        match token {
            Token::Number(value) => Ok(Expression::Number(value)),
            Token::Open => {
                let inner = self.sum()?;
                self.close(position)?;
                Ok(inner)
            }
            Token::Name(name) => {
                let function = Function::named(&name, position)?;
                let arguments = self.arguments(&name)?;
                function.check_count(arguments.len(), position)?;
                Ok(Expression::Call {
                    function,
                    arguments,
                    position,
                })
            }
            other => {
                let message = format!(
                    "expected a number, a function or `(`, found {}",
                    other.describe()
                );
                Err(Fault::new(position, message))
            }
        }
    }

    fn arguments(&mut self, name: &str) -> Result<Vec<Expression>, Fault> {
        let (Token::Open, open) = self.peek() else {
            let message = format!("expected `(` after the function {name}");
            return Err(Fault::new(self.peek().1, message));
        };
        self.next += 1;
        if let (Token::Close, _) = self.peek() {
            self.next += 1;
            return Ok(Vec::new());
        }
        let mut arguments = vec![self.sum()?];
        while let (Token::Comma, _) = self.peek() {
            self.next += 1;
            arguments.push(self.sum()?);
        }
        self.close(open)?;
        Ok(arguments)
    }

    fn close(&mut self, open: usize) -> Result<(), Fault> {
        match self.peek() {
            (Token::Close, _) => {
                self.next += 1;
                Ok(())
            }
            (found, position) => Err(Fault::new(
                position,
                format!(
                    "expected an operator or `)` for the `(` at character {open}, found {}",
                    found.describe()
                ),
            )),
        }
    }

    /// The next token; past the last one it stays [`Token::End`].
    fn peek(&self) -> (Token, usize) {
        match self.tokens.get(self.next).or_else(|| self.tokens.last()) {
            Some(found) => found.clone(),
            None => (Token::End, 1),
        }
    }
}
